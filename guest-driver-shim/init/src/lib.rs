//! The first process of a Linux guest that runs one program (`causeway run --program`, `causeway
//! initramfs`).
//!
//! It mounts what programs expect, loads the modules that it was given, changes to the root file
//! system of a disk or of a folder of the host if one was named, mounts other folders of the host,
//! starts the network, hands the Causeway function to `uio_pci_generic`, runs the program on the
//! console, marks its begin and end for the host's counts of exits, resets clients of the device
//! whose processes have died, and ends the VM with the program's exit status. What it is to do
//! stands in one file of the initramfs ([`Configuration`]).
//!
//! The kernel panics if its first process ends: nothing here does, whatever is missing. What goes
//! wrong is said on the console, in lines that begin with `causeway-init: `.

mod configuration;
mod console;
mod driver;
mod end;
mod interfaces;
mod modules;
mod mounts;
mod network;
mod port;
mod processes;
mod root;
mod shares;
mod sources;
mod users;

pub use configuration::{Configuration, ConfigurationError, FILES, LIBRARIES};
pub use end::{NOT_RUN, Status};
pub use interfaces::start_loopback;
pub use network::{Mac, MacError, Network, address_of};
pub use sources::{Layer, Root, Share};
pub use users::{GROUPS, Identity, NameError, USERS, User, UserError};

use causeway_sysfs::{Clients, PciFunction};
use causeway_testdev_records::Mark;
use console::say;

/// Runs the guest: mounts file systems, loads Linux kernel modules, runs the program, and ends the
/// VM. Does not return.
pub fn run() -> ! {
    // A panic would end the process, and with it the kernel, without a word to those who wait for
    // the status.
    std::panic::set_hook(Box::new(|panic| {
        say(&format!("internal error: {panic}"));
        end::machine(Status::NotRun, rustix::fs::sync);
    }));
    mounts::mount_all();
    console::attach();
    processes::lead_the_console();
    let status = Configuration::read().map_or_else(
        |error| {
            say(&error.to_string());
            Status::NotRun
        },
        |configuration| carry_out(&configuration),
    );
    processes::end_all();
    end::machine(status, || {
        mounts::unmount_all();
        rustix::fs::sync();
    })
}

fn carry_out(configuration: &Configuration) -> Status {
    modules::load_all(&configuration.modules);
    if let Err(error) = mount_sources(configuration) {
        say(&error.to_string());
        return Status::NotRun;
    }
    if let Some(network) = &configuration.network
        && let Err(error) = interfaces::start(network, configuration.root.as_ref())
    {
        say(&error.to_string());
        return Status::NotRun;
    }
    let functions = PciFunction::all();
    let clients: Vec<Clients> = functions.iter().filter_map(prepare).collect();
    // The kernel drops the locks of processes that die; what they own stays until it is reaped.
    let reap = || {
        for clients in &clients {
            clients.reap();
        }
    };
    counted(|| processes::run(configuration, reap))
}

/// Changes to the root file system that the program is to have, and mounts the shares there.
fn mount_sources(configuration: &Configuration) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(root) = &configuration.root {
        root::enter(root)?;
    }
    Ok(shares::mount_all(&configuration.shares)?)
}

/// Calls `program`, and marks its begin and end, between which the host counts exits. What was
/// printed before it is sent before, and what it prints is sent before its end.
fn counted(program: impl FnOnce() -> Status) -> Status {
    console::drain();
    port::mark(Mark::ProgramBegin);
    let status = program();
    console::drain();
    port::mark(Mark::ProgramEnd);
    status
}

/// Prepares a function for processes, and returns its clients.
fn prepare(function: &PciFunction) -> Option<Clients> {
    driver::prepare(function);
    let clients = Clients::open(function);
    clients.inspect_err(|error| say(&error.to_string())).ok()
}
