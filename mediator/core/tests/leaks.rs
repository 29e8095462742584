//! A session leaves no descriptor and no thread behind. A test alone in its process, which it
//! counts.

mod rig;

use causeway_mediator::GuestSession;
use rig::*;
use zerocopy::IntoBytes;

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn descriptors_and_threads_are_given_back() {
    let rig = Rig::new();
    rig.backend.define("fault", 0, |launch| launch.store(0, 0));
    let use_session = |fault: bool| {
        let guest = rig.another();
        let space = guest.space();
        let (va, _view) = guest.buffer(space, PAGE);
        let mut queues = [guest.command_buffer(space), guest.command_buffer(space)];
        let module = guest.load_module(space, "kernel fault", 0).unwrap();
        let kernel = guest.kernel(module, "fault").unwrap().handle;
        queues[0].submit(&[release(va, 1).as_bytes()]);
        if fault {
            queues[1].submit(&[&launch(kernel, &[])]);
            queues[1].wait_for_fault();
        } else {
            guest.session.reset();
        }
    };
    use_session(true);
    let before = (count("/proc/self/fd"), count("/proc/self/task"));
    for round in 0..30 {
        use_session(round % 2 == 0);
    }
    // A thread that was joined may still be listed for a moment.
    eventually("the end of all threads", || {
        (count("/proc/self/fd"), count("/proc/self/task")) == before
    });
    rig.guest.session.close();
    assert_eq!(rig.backend.live(), NOTHING);
}
