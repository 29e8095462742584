//! The part of HTTP/1.1 (RFC 9112) that scrapers, `causeway limit` and `causeway control` need: one
//! request and one answer per connection. Only a request that changes something has a body.

use httparse::Status;

/// Maximum length of a request in bytes: its request line with all header fields, and its body.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Maximum length of the body of a request in bytes.
pub const BODY_BYTES_MAX: usize = 4 << 10;
/// Maximum number of header fields of a request or an answer.
const HEADERS_MAX: usize = 64;

/// What a monitor can request from the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// `/metrics`: OpenMetrics text for scrapers.
    Metrics,
    /// `/snapshot`: the JSON snapshot for `causeway stat`.
    Snapshot,
    /// `/limits`: the limits of guests as JSON, for `causeway limit`, which can change them.
    Limits,
    /// `/info`: how a run stands as JSON, at its control socket.
    Info,
    /// `/pause` and others: what can be done to a run, at its control socket.
    Action(Action),
}

impl Resource {
    /// All resources.
    const ALL: [Self; 9] = [
        Self::Metrics,
        Self::Snapshot,
        Self::Limits,
        Self::Info,
        Self::Action(Action::Pause),
        Self::Action(Action::Resume),
        Self::Action(Action::Stop),
        Self::Action(Action::AddDisk),
        Self::Action(Action::RemoveDisk),
    ];

    /// Returns the path of the resource.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/metrics",
            Self::Snapshot => "/snapshot",
            Self::Limits => "/limits",
            Self::Info => "/info",
            Self::Action(Action::Pause) => "/pause",
            Self::Action(Action::Resume) => "/resume",
            Self::Action(Action::Stop) => "/stop",
            Self::Action(Action::AddDisk) => "/add-disk",
            Self::Action(Action::RemoveDisk) => "/remove-disk",
        }
    }

    /// Returns the resource at `path`.
    fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.path() == path)
    }

    /// Returns the methods that the resource has.
    pub const fn methods(self) -> &'static str {
        match self {
            Self::Metrics | Self::Snapshot | Self::Info => "GET, HEAD",
            Self::Limits => "GET, HEAD, PUT",
            Self::Action(_) => "PUT",
        }
    }

    /// Returns whether the resource has this method.
    fn has(self, method: &str) -> bool {
        self.methods().split(", ").any(|known| known == method)
    }

    /// Returns whether a request to change the resource must have a body.
    const fn needs_body(self) -> bool {
        matches!(self, Self::Limits)
    }
}

/// What a client wants of a run, at its control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `PUT /pause`.
    Pause,
    /// `PUT /resume`.
    Resume,
    /// `PUT /stop`.
    Stop,
    /// `PUT /add-disk`.
    AddDisk,
    /// `PUT /remove-disk`.
    RemoveDisk,
}

/// A monitor's request, judged by the bytes received so far: unfinished, valid or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// A request whose header fields or body are not complete.
    Unfinished,
    /// A valid request: GET, or HEAD, whose answer has no body.
    Get {
        /// The requested resource.
        resource: Resource,
        /// Whether the answer has a body: false for HEAD.
        body: bool,
    },
    /// A valid request to change something: PUT, with its body.
    Put {
        /// What is to be changed.
        resource: Resource,
        /// How; of no bytes if the request has no body.
        body: &'a [u8],
    },
    /// A request that is answered by an HTTP error.
    Refused(Refusal<'a>),
}

/// Why a request is answered by an HTTP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<'a> {
    /// The bytes are not an HTTP request.
    Malformed,
    /// No resource is at this path.
    NotFound(&'a str),
    /// The resource does not have the method.
    Method(Resource),
    /// The header fields are longer than [`REQUEST_BYTES_MAX`], or too many.
    TooLong,
    /// The request does not say how long its body is.
    Length,
    /// An action has a query: what it is about stands in its body.
    Query,
    /// The body is longer than [`BODY_BYTES_MAX`], or the whole request than
    /// [`REQUEST_BYTES_MAX`].
    BodyTooLong,
}

/// Parses a monitor's request from `received`, all bytes that it has sent so far.
pub fn parse(received: &[u8]) -> Request<'_> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(received) {
        Ok(Status::Partial) if received.len() < REQUEST_BYTES_MAX => Request::Unfinished,
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Request::Refused(Refusal::TooLong)
        }
        Ok(Status::Complete(head_bytes)) => wanted(&request, received, head_bytes),
        Err(_) => Request::Refused(Refusal::Malformed),
    }
}

/// Returns what a request wants whose head is complete and takes `head_bytes` of `received`.
fn wanted<'a>(
    request: &httparse::Request<'_, 'a>,
    received: &'a [u8],
    head_bytes: usize,
) -> Request<'a> {
    let target = request.path.unwrap_or_default();
    if !target.starts_with('/') {
        return Request::Refused(Refusal::Malformed);
    }
    let path = target.split('?').next().unwrap_or_default();
    let Some(resource) = Resource::at(path) else {
        return Request::Refused(Refusal::NotFound(path));
    };
    let method = request.method.unwrap_or_default();
    if !resource.has(method) {
        return Request::Refused(Refusal::Method(resource));
    }
    let is_action = matches!(resource, Resource::Action(_));
    if is_action && target != path {
        return Request::Refused(Refusal::Query);
    }
    if method != "PUT" {
        let body = method == "GET";
        return Request::Get { resource, body };
    }
    match body_bytes(request.headers, resource.needs_body()) {
        Err(refusal) => Request::Refused(refusal),
        // Without its body, it would be about the whole run.
        Ok(0) if is_action && received.len() > head_bytes => Request::Refused(Refusal::Length),
        Ok(bytes) => match received.get(head_bytes..head_bytes + bytes) {
            Some(body) => Request::Put { resource, body },
            None if received.len() < REQUEST_BYTES_MAX => Request::Unfinished,
            None => Request::Refused(Refusal::BodyTooLong),
        },
    }
}

/// Returns the length of a request's body, by its header fields. Without one, the body has no
/// bytes, unless `is_needed`.
fn body_bytes(
    headers: &[httparse::Header<'_>],
    is_needed: bool,
) -> Result<usize, Refusal<'static>> {
    let named = |name: &'static str| {
        let fields = headers.iter();
        fields.filter(move |field| field.name.eq_ignore_ascii_case(name))
    };
    // A body in chunks has a length in each of them.
    if named("transfer-encoding").next().is_some() {
        return Err(Refusal::Length);
    }
    let mut lengths = named("content-length");
    let length = match (lengths.next(), lengths.next()) {
        (Some(length), None) => std::str::from_utf8(length.value).unwrap_or_default(),
        (None, _) if is_needed => return Err(Refusal::Length),
        (None, _) => return Ok(0),
        (Some(_), Some(_)) => return Err(Refusal::Malformed),
    };
    // `parse` alone would take a sign, too.
    if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refusal::Malformed);
    }
    let bytes = length.parse().ok().filter(|bytes| *bytes <= BODY_BYTES_MAX);
    bytes.ok_or(Refusal::BodyTooLong)
}

/// Returns the HTTP answer (status 200) to a request for `resource`, whose text is `content`. If
/// `body` is false, as for a HEAD request, the answer consists of status line and header fields
/// only.
pub fn answer(resource: Resource, content: &str, body: bool) -> Vec<u8> {
    let body = if body { content } else { "" };
    let content_type = match resource {
        Resource::Metrics => super::openmetrics::CONTENT_TYPE,
        _ => "application/json",
    };
    response("200 OK", content_type, "", content.len(), body)
}

/// Status of the answer to a request whose content is understood and refused.
pub const REFUSED: u16 = 422;

/// Returns the HTTP answer (status [`REFUSED`]) to a request to change limits that is refused.
/// `why` is one line.
pub fn refuse_change(why: &str) -> Vec<u8> {
    let content_type = "text/plain; charset=utf-8";
    response(
        "422 Unprocessable Content",
        content_type,
        "",
        why.len(),
        why,
    )
}

/// Returns the HTTP answer (status [`REFUSED`]) to a request to change limits that is refused, in
/// JSON, whose text is `content`.
pub fn refuse_change_in_json(content: &str) -> Vec<u8> {
    json("422 Unprocessable Content", "", content, true)
}

/// Returns the HTTP answer with this status, in JSON. `more` are more header fields, each with its
/// line end. If `has_body` is false, as for a HEAD request, the answer consists of status line and
/// header fields only.
pub fn json(status: &str, more: &str, content: &str, has_body: bool) -> Vec<u8> {
    let body = if has_body { content } else { "" };
    response(status, "application/json", more, content.len(), body)
}

/// Returns the HTTP answer to a request that is refused, in JSON, whose text is `content`.
pub fn refuse_in_json(refusal: Refusal<'_>, content: &str) -> Vec<u8> {
    let (status, _) = status_of(refusal);
    json(status, &allowed(refusal), content, true)
}

/// Returns the HTTP answer to a request that is refused.
pub fn refuse(refusal: Refusal<'_>) -> Vec<u8> {
    let (status, text) = status_of(refusal);
    let content_type = "text/plain; charset=utf-8";
    response(status, content_type, &allowed(refusal), text.len(), text)
}

/// Returns the header field that names the methods of a resource, if the method was wrong.
fn allowed(refusal: Refusal<'_>) -> String {
    match refusal {
        Refusal::Method(resource) => format!("Allow: {}\r\n", resource.methods()),
        _ => String::new(),
    }
}

/// Returns status and text of the answer to a request that is refused.
fn status_of(refusal: Refusal<'_>) -> (&'static str, &'static str) {
    match refusal {
        Refusal::Malformed => ("400 Bad Request", "not an HTTP request\n"),
        Refusal::NotFound(_) => ("404 Not Found", "not found: the metrics are at /metrics\n"),
        Refusal::Method(_) => (
            "405 Method Not Allowed",
            "this resource does not have this method\n",
        ),
        Refusal::Length => (
            "411 Length Required",
            "send the length of the body (Content-Length)\n",
        ),
        Refusal::Query => ("400 Bad Request", "this resource takes no query\n"),
        Refusal::BodyTooLong => ("413 Content Too Large", "the request is too long\n"),
        Refusal::TooLong => (
            "431 Request Header Fields Too Large",
            "the head of the request is too long\n",
        ),
    }
}

fn response(status: &str, content_type: &str, more: &str, length: usize, body: &str) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         {more}Connection: close\r\n\r\n"
    );
    let mut response = head.into_bytes();
    response.extend_from_slice(body.as_bytes());
    response
}

/// Returns the body of an HTTP answer, or `None` if the answer is incomplete or its status is not
/// 200.
pub fn body_of(answer: &[u8]) -> Option<&[u8]> {
    let (status, body) = status_and_body_of(answer)?;
    (status == 200).then_some(body)
}

/// Returns status and body of an HTTP answer, or `None` if the answer is incomplete.
pub fn status_and_body_of(answer: &[u8]) -> Option<(u16, &[u8])> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(Status::Complete(head_bytes)) = response.parse(answer) else {
        return None;
    };
    let body = answer.get(head_bytes..)?;
    let mut fields = response.headers.iter();
    let length = fields.find(|field| field.name.eq_ignore_ascii_case("content-length"))?;
    let length: usize = std::str::from_utf8(length.value).ok()?.parse().ok()?;
    let status = response.code.filter(|_| length == body.len())?;
    Some((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHOD: Refusal<'_> = Refusal::Method(Resource::Metrics);
    const PAUSE: Resource = Resource::Action(Action::Pause);

    /// A request to change limits.
    fn limits(body: &[u8]) -> Request<'_> {
        let resource = Resource::Limits;
        Request::Put { resource, body }
    }

    /// A request to change limits, with these header fields and this body.
    fn put(fields: &str, body: &str) -> Vec<u8> {
        format!("PUT /limits HTTP/1.1\r\n{fields}\r\n{body}").into_bytes()
    }

    #[test]
    fn a_change_has_a_body_of_the_length_that_it_says() {
        let request = put("Host: x\r\nContent-Length: 4\r\n", "body and more");
        assert_eq!(parse(&request), limits(b"body"));
        let whole = request.len() - " and more".len();
        assert_eq!(parse(&request[..whole]), limits(b"body"));
        for cut in 0..whole {
            assert_eq!(parse(&request[..cut]), Request::Unfinished, "{cut} bytes");
        }
        assert_eq!(parse(&put("content-length: 0\r\n", "")), limits(b""));
        let most = "x".repeat(BODY_BYTES_MAX);
        let request = put("Content-Length: 4096\r\n", &most);
        assert_eq!(parse(&request), limits(most.as_bytes()));
    }

    #[test]
    fn a_request_that_needs_no_body_may_lack_one() {
        let request = |target: &str, fields: &str, body: &str| {
            format!("PUT {target} HTTP/1.1\r\n{fields}\r\n{body}").into_bytes()
        };
        let pause = |fields: &str| request("/pause", fields, "{}");
        let put = |body| Request::Put {
            resource: PAUSE,
            body,
        };
        let whole = "Host: localhost\r\n";
        assert_eq!(parse(&request("/pause", whole, "")), put(b""));
        // What is not announced, or stands elsewhere, would be left out: all VMs would pause.
        assert_eq!(parse(&pause(whole)), Request::Refused(Refusal::Length));
        let query = request("/pause?vm=vm1", whole, "");
        assert_eq!(parse(&query), Request::Refused(Refusal::Query));
        assert_eq!(parse(&pause("Content-Length: 2\r\n")), put(b"{}"));
        let chunked = pause("Transfer-Encoding: chunked\r\n");
        assert_eq!(parse(&chunked), Request::Refused(Refusal::Length));
    }

    #[test]
    fn every_resource_is_at_its_path() {
        for resource in Resource::ALL {
            assert_eq!(Resource::at(resource.path()), Some(resource));
        }
        assert!(Resource::Info.has("HEAD") && PAUSE.has("PUT"));
        assert!(!Resource::Info.has("PUT") && !PAUSE.has("GET") && !PAUSE.has("GET, HEAD"));
    }

    #[test]
    fn a_body_of_no_or_too_great_a_length_is_refused_before_it_is_sent() {
        let long_head = format!("x: {}\r\nContent-Length: 4096\r\n", "x".repeat(5000));
        let long_head = put(&long_head, &"x".repeat(4095));
        for (request, refusal) in [
            (put("", "{}"), Refusal::Length),
            (put("Transfer-Encoding: chunked\r\n", ""), Refusal::Length),
            (
                put("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", "{}"),
                Refusal::Length,
            ),
            (put("Content-Length: 4097\r\n", ""), Refusal::BodyTooLong),
            (
                put("Content-Length: 99999999999999999999999\r\n", ""),
                Refusal::BodyTooLong,
            ),
            (put("Content-Length: -1\r\n", ""), Refusal::Malformed),
            (put("Content-Length: +1\r\n", "x"), Refusal::Malformed),
            (put("Content-Length: \r\n", ""), Refusal::Malformed),
            (
                put("Content-Length: 1\r\nContent-Length: 2\r\n", "{}"),
                Refusal::Malformed,
            ),
            (
                long_head[..REQUEST_BYTES_MAX].to_vec(),
                Refusal::BodyTooLong,
            ),
        ] {
            let text = String::from_utf8_lossy(&request).into_owned();
            assert_eq!(parse(&request), Request::Refused(refusal), "{text:?}");
        }
    }

    #[test]
    fn what_scrapers_send_is_understood() {
        let curl = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8.5.0\r\n\
                     Accept: */*\r\n\r\n";
        let metrics = |body| Request::Get {
            resource: Resource::Metrics,
            body,
        };
        assert_eq!(parse(curl), metrics(true));
        for cut in 0..curl.len() {
            assert_eq!(parse(&curl[..cut]), Request::Unfinished, "{cut} bytes");
        }
        assert_eq!(
            parse(b"HEAD /metrics?name=x HTTP/1.0\r\n\r\n"),
            metrics(false)
        );
        let snapshot = parse(b"GET /snapshot HTTP/1.1\r\n\r\n");
        let resource = Resource::Snapshot;
        assert_eq!(
            snapshot,
            Request::Get {
                resource,
                body: true
            }
        );
    }

    #[test]
    fn empty_lines_before_a_request_are_skipped() {
        assert_eq!(parse(b"\r\n\r\n"), Request::Unfinished);
        let get = parse(b"\r\nGET / HTTP/1.1\r\n\r\n");
        assert_eq!(get, Request::Refused(Refusal::NotFound("/")));
    }

    #[test]
    fn what_cannot_be_answered_is_refused_for_what_it_is() {
        for (request, refusal) in [
            (&b"rubbish\r\n\r\n"[..], Refusal::Malformed),
            (b"\xff\xfe / HTTP/1.1\r\n\r\n", Refusal::Malformed),
            (b"GET /metrics\r\n\r\n", Refusal::Malformed),
            (b"GET metrics HTTP/1.1\r\n\r\n", Refusal::Malformed),
            (b"GET /metrics HTTP/2\r\n\r\n", Refusal::Malformed),
            (b"GET /metrics x HTTP/1.1\r\n\r\n", Refusal::Malformed),
            (b"POST /metrics HTTP/1.1\r\n\r\n", METHOD),
            (b"PUT /metrics HTTP/1.1\r\n\r\n", METHOD),
            (
                b"PUT /snapshot HTTP/1.1\r\n\r\n",
                Refusal::Method(Resource::Snapshot),
            ),
            (b"POST /pause HTTP/1.1\r\n\r\n", Refusal::Method(PAUSE)),
            (
                b"POST /limits HTTP/1.1\r\n\r\n",
                Refusal::Method(Resource::Limits),
            ),
            (b"GET /?x HTTP/1.1\r\n\r\n", Refusal::NotFound("/")),
            (
                b"GET /metrics/ HTTP/1.1\r\n\r\n",
                Refusal::NotFound("/metrics/"),
            ),
            (&[b'a'; REQUEST_BYTES_MAX], Refusal::TooLong),
        ] {
            assert_eq!(parse(request), Request::Refused(refusal), "{request:?}");
            let told = String::from_utf8(refuse(refusal)).unwrap();
            assert!(told.starts_with("HTTP/1.1 4"), "{told}");
            assert_eq!(body_of(told.as_bytes()), None);
        }
    }

    #[test]
    fn an_answer_says_how_long_it_is_and_one_that_is_cut_is_none() {
        let whole = answer(Resource::Snapshot, "{}", true);
        assert_eq!(body_of(&whole), Some(&b"{}"[..]));
        assert_eq!(body_of(&whole[..whole.len() - 1]), None);
        let refused = refuse_change("why");
        assert_eq!(status_and_body_of(&refused), Some((REFUSED, &b"why"[..])));
        assert_eq!(body_of(&refused), None);
        let head = String::from_utf8(answer(Resource::Metrics, "# EOF\n", false)).unwrap();
        assert!(head.contains("Content-Length: 6\r\n"), "{head}");
        assert!(head.ends_with("\r\n\r\n"));
    }
}
