//! Queues with priorities, as streams of the driver.

use causeway_cuda::{Config, Sms};
use causeway_mediator::backend::Backend;
use causeway_protocol::registers::features;

use crate::support::{Rig, is_child, is_on_standin, priorities};

const NOTHING: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing()
{
    ret;
}
";

/// Lets queues of three priorities launch a kernel each, and checks which streams did.
fn check(config: &Config) {
    let mut rig = Rig::with(config);
    assert_ne!(rig.cuda.attributes().features & features::PRIORITIES, 0);
    let greatest = rig.cuda.greatest_priority();
    assert!(greatest < 0, "{greatest}");
    let module = rig.load(NOTHING.as_bytes()).unwrap();
    for priority in [greatest, -1, 0] {
        rig.queue = rig.space.create_queue(priority).unwrap();
        rig.launch(&module, "nothing", ([1; 3], [1; 3]), &[])
            .unwrap();
        rig.queue.finish().unwrap();
    }
    if is_on_standin() {
        assert_eq!(priorities(), [-5, -1, 0]);
    }
}

#[test]
fn the_stream_of_a_queue_has_its_priority() {
    if is_child("priorities::the_stream_of_a_queue_has_its_priority", &[]) {
        check(&Config::default());
    }
}

#[test]
fn a_stream_of_some_multiprocessors_has_a_priority_too() {
    let name = "priorities::a_stream_of_some_multiprocessors_has_a_priority_too";
    if is_child(name, &[]) {
        let sms = Some(Sms { count: 8, group: 0 });
        check(&Config {
            sms,
            ..Config::default()
        });
    }
}
