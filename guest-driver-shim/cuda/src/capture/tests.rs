use super::*;

fn stream(flags: u32) -> Arc<Stream> {
    Arc::new(Stream::for_test(flags))
}

fn begin(captures: &Captures, stream: &Arc<Stream>, mode: u32) -> Arc<Graph> {
    let graph = Graph::of_capture();
    let place = (Arc::clone(&graph), Vec::new());
    captures.begin(stream, mode, place).unwrap();
    graph
}

fn code<T>(answer: Answer<T>) -> Option<Code> {
    answer.err()
}

#[test]
fn nodes_of_one_stream_follow_each_other() {
    let (captures, stream) = (Captures::default(), stream(0));
    begin(&captures, &stream, RELAXED);
    assert!(stream.is_capturing());
    stream.note(Kind::Empty).unwrap();
    stream.note(Kind::Empty).unwrap();
    let (graph, result) = captures.end(&stream).unwrap();
    assert_eq!(result, Ok(()));
    assert!(!stream.is_capturing());
    let nodes = graph.nodes();
    assert_eq!(graph.edges(), [(nodes[0], nodes[1])]);
    assert_eq!(
        code(stream.note(Kind::Empty)),
        Some(Code::STREAM_CAPTURE_INVALIDATED)
    );
    assert_eq!(code(captures.end(&stream)), Some(Code::ILLEGAL_STATE));
}

#[test]
fn a_stream_that_forks_has_to_join() {
    let captures = Captures::default();
    let (origin, side) = (stream(1), stream(1));
    begin(&captures, &origin, GLOBAL);
    origin.note(Kind::Empty).unwrap();
    origin.captured().unwrap().join(&side).unwrap();
    side.note(Kind::Empty).unwrap();
    origin.note(Kind::Empty).unwrap();
    side.captured().unwrap().join(&origin).unwrap();
    origin.note(Kind::Empty).unwrap();
    let (graph, result) = captures.end(&origin).unwrap();
    assert_eq!(result, Ok(()));
    assert!(!side.is_capturing(), "the other stream is free again");
    let [first, left, right, last] = graph.nodes()[..] else {
        panic!("not four nodes")
    };
    let mut edges = graph.edges();
    edges.sort_unstable();
    let wanted = [(first, left), (first, right), (left, last), (right, last)];
    assert_eq!(edges, wanted);

    begin(&captures, &origin, GLOBAL);
    origin.note(Kind::Empty).unwrap();
    origin.captured().unwrap().join(&side).unwrap();
    side.note(Kind::Empty).unwrap();
    let (_, result) = captures.end(&origin).unwrap();
    assert_eq!(result, Err(Code::STREAM_CAPTURE_UNJOINED));
    assert!(!origin.is_capturing() && !side.is_capturing());
}

#[test]
fn two_captures_do_not_merge() {
    let captures = Captures::default();
    let (first, second) = (stream(0), stream(0));
    begin(&captures, &first, RELAXED);
    begin(&captures, &second, RELAXED);
    let merged = first.captured().unwrap().join(&second);
    assert_eq!(code(merged), Some(Code::STREAM_CAPTURE_MERGE));
    for stream in [first, second] {
        let (_, result) = captures.end(&stream).unwrap();
        assert_eq!(result, Err(Code::STREAM_CAPTURE_INVALIDATED));
    }
}

#[test]
fn only_the_stream_and_the_thread_that_began_a_capture_end_it() {
    let captures = Captures::default();
    let (origin, side) = (stream(0), stream(0));
    begin(&captures, &origin, GLOBAL);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| code(captures.end(&origin)));
        let wanted = Some(Code::STREAM_CAPTURE_WRONG_THREAD);
        assert_eq!(other.join().unwrap(), wanted);
    });
    origin.captured().unwrap().join(&side).unwrap();
    assert_eq!(
        code(captures.end(&side)),
        Some(Code::STREAM_CAPTURE_UNMATCHED)
    );
    let (_, result) = captures.end(&origin).unwrap();
    assert_eq!(result, Err(Code::STREAM_CAPTURE_INVALIDATED));
}

#[test]
fn a_stream_is_captured_once_and_the_legacy_stream_never() {
    let captures = Captures::default();
    let stream = stream(0);
    begin(&captures, &stream, RELAXED);
    let again = captures.begin(&stream, RELAXED, (Graph::new(), Vec::new()));
    assert_eq!(code(again), Some(Code::ILLEGAL_STATE));
    let legacy = Arc::new(Stream::default_of(1, true));
    let refused = captures.begin(&legacy, RELAXED, (Graph::new(), Vec::new()));
    assert_eq!(code(refused), Some(Code::STREAM_CAPTURE_UNSUPPORTED));
    let joined = stream.captured().unwrap().join(&legacy);
    assert_eq!(code(joined), Some(Code::STREAM_CAPTURE_IMPLICIT));
}

#[test]
fn work_of_the_legacy_stream_ends_captures_of_blocking_streams_only() {
    let captures = Captures::default();
    let free = stream(1);
    begin(&captures, &free, RELAXED);
    assert_eq!(captures.check_implicit(free.context), Ok(()));
    let blocking = stream(0);
    begin(&captures, &blocking, RELAXED);
    assert_eq!(
        captures.check_implicit(blocking.context + 1),
        Ok(()),
        "another context"
    );
    let refused = captures.check_implicit(blocking.context);
    assert_eq!(refused, Err(Code::STREAM_CAPTURE_IMPLICIT));
    let invalid = blocking.note(Kind::Empty);
    assert_eq!(code(invalid), Some(Code::STREAM_CAPTURE_INVALIDATED));
    free.note(Kind::Empty).unwrap();
}

#[test]
fn modes_say_which_captures_forbid_unsafe_calls() {
    // Mode of the capture, mode of the calling thread, whether it is the thread that captures.
    let cases = [
        (0, 0, true, false),
        (0, 0, false, false),
        (0, 1, false, true),
        (0, 1, true, false),
        (0, 2, true, true),
        (1, 0, true, false),
        (1, 0, false, true),
        (2, 0, true, true),
        (2, 1, true, true),
    ];
    for (of_capture, of_thread, is_own, is_allowed) in cases {
        let (captures, stream) = (Captures::default(), stream(0));
        begin(&captures, &stream, of_capture);
        let ask = || {
            MODE.set(of_thread);
            let answer = captures.check_unsafe();
            MODE.set(GLOBAL);
            answer
        };
        let answer = match is_own {
            true => ask(),
            false => std::thread::scope(|scope| scope.spawn(ask).join().unwrap()),
        };
        let case = (of_capture, of_thread, is_own);
        assert_eq!(answer.is_ok(), is_allowed, "{case:?}");
        let noted = stream.note(Kind::Empty);
        assert_eq!(
            noted.is_ok(),
            is_allowed,
            "a refused call ends the capture: {case:?}"
        );
    }
}

#[test]
fn an_event_of_an_ended_capture_joins_nothing() {
    let captures = Captures::default();
    let (origin, other) = (stream(0), stream(0));
    begin(&captures, &origin, RELAXED);
    let captured = origin.captured().unwrap();
    captures.end(&origin).unwrap().1.unwrap();
    assert_eq!(
        code(captured.clone().join(&other)),
        Some(Code::CAPTURED_EVENT)
    );
    begin(&captures, &other, RELAXED);
    assert_eq!(
        code(captured.join(&other)),
        Some(Code::STREAM_CAPTURE_ISOLATION)
    );
    assert_eq!(
        code(other.note(Kind::Empty)),
        Some(Code::STREAM_CAPTURE_INVALIDATED)
    );
}
