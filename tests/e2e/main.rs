//! The `causeway` command, run for real: every guest, every wrong argument, every way to end.
//!
//! Each test starts the command in an empty directory of its own and a process group of its own,
//! and looks afterwards at what it said, how it ended, and what it left behind ([`command`]).

mod bad_arguments;
mod bad_images;
mod bad_systems;
mod bare_images;
mod command;
mod command_line;
mod control;
mod cuda;
mod cuda_programs;
mod data_path;
mod description;
mod disk_keeper;
mod doctor;
mod ending;
mod exits;
mod fabric;
mod guests;
mod host_limits;
mod interactive;
mod limits;
mod logs;
mod measure;
mod numa;
mod origin;
mod output;
mod parsed_report;
mod programs;
mod report;
mod sandbox;
mod schema;
mod serve;
mod serving;
mod several_gpus;
mod shares;
mod sharing;
mod standin;
mod stat;
mod suites;
mod terminal;
mod tracepoints;
mod visible;
mod without_kvm;
mod workers;
