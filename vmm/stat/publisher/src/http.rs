//! The part of HTTP/1.1 (RFC 9112) that scrapers need: one request without a body and one answer
//! per connection.

use httparse::Status;

/// Maximum length of a request in bytes: its request line with all header fields.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Maximum number of header fields of a request or an answer.
const HEADERS_MAX: usize = 64;

/// What a monitor can request from the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// `/metrics`: OpenMetrics text for scrapers.
    Metrics,
    /// `/snapshot`: the JSON snapshot for `causeway stat`.
    Snapshot,
}

/// A monitor's request, judged by the bytes received so far: unfinished, valid or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A request whose header fields are not complete.
    Unfinished,
    /// A valid request: GET, or HEAD, whose answer has no body.
    Get {
        /// The requested resource.
        resource: Resource,
        /// Whether the answer has a body: false for HEAD.
        body: bool,
    },
    /// A request that is answered by an HTTP error.
    Refused(Refusal),
}

/// Why a request is answered by an HTTP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The bytes are not an HTTP request.
    Malformed,
    /// The requested resource does not exist.
    NotFound,
    /// The method is neither GET nor HEAD.
    Method,
    /// The header fields are longer than [`REQUEST_BYTES_MAX`], or too many.
    TooLong,
}

/// Parses a monitor's request from `received`, all bytes that it has sent so far.
pub fn parse(received: &[u8]) -> Request {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(received) {
        Ok(Status::Partial) if received.len() < REQUEST_BYTES_MAX => Request::Unfinished,
        Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Request::Refused(Refusal::TooLong)
        }
        Ok(Status::Complete(_)) => resource_of(&request),
        Err(_) => Request::Refused(Refusal::Malformed),
    }
}

fn resource_of(request: &httparse::Request<'_, '_>) -> Request {
    let target = request.path.unwrap_or_default();
    if !target.starts_with('/') {
        return Request::Refused(Refusal::Malformed);
    }
    let body = match request.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Request::Refused(Refusal::Method),
    };
    let resource = match target.split('?').next() {
        Some("/metrics") => Resource::Metrics,
        Some("/snapshot") => Resource::Snapshot,
        _ => return Request::Refused(Refusal::NotFound),
    };
    Request::Get { resource, body }
}

/// Returns the HTTP answer (status 200) to a request for `resource`, whose text is `content`. If
/// `body` is false, as for a HEAD request, the answer consists of status line and header fields
/// only.
pub fn answer(resource: Resource, content: &str, body: bool) -> Vec<u8> {
    let body = if body { content } else { "" };
    let content_type = match resource {
        Resource::Metrics => super::openmetrics::CONTENT_TYPE,
        Resource::Snapshot => "application/json",
    };
    response("200 OK", content_type, "", content.len(), body)
}

/// Returns the HTTP answer to a request that is refused.
pub fn refuse(refusal: Refusal) -> Vec<u8> {
    let (status, more, text) = match refusal {
        Refusal::Malformed => ("400 Bad Request", "", "not an HTTP request\n"),
        Refusal::NotFound => (
            "404 Not Found",
            "",
            "not found: the metrics are at /metrics\n",
        ),
        Refusal::Method => (
            "405 Method Not Allowed",
            "Allow: GET, HEAD\r\n",
            "only GET and HEAD are supported\n",
        ),
        Refusal::TooLong => (
            "431 Request Header Fields Too Large",
            "",
            "the head of the request is too long\n",
        ),
    };
    let content_type = "text/plain; charset=utf-8";
    response(status, content_type, more, text.len(), text)
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
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(Status::Complete(head_bytes)) = response.parse(answer) else {
        return None;
    };
    let body = answer.get(head_bytes..)?;
    let mut fields = response.headers.iter();
    let length = fields.find(|field| field.name.eq_ignore_ascii_case("content-length"))?;
    let length: usize = std::str::from_utf8(length.value).ok()?.parse().ok()?;
    (response.code == Some(200) && length == body.len()).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(get, Request::Refused(Refusal::NotFound));
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
            (b"POST /metrics HTTP/1.1\r\n\r\n", Refusal::Method),
            (b"GET / HTTP/1.1\r\n\r\n", Refusal::NotFound),
            (b"GET /metrics/ HTTP/1.1\r\n\r\n", Refusal::NotFound),
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
        let head = String::from_utf8(answer(Resource::Metrics, "# EOF\n", false)).unwrap();
        assert!(head.contains("Content-Length: 6\r\n"), "{head}");
        assert!(head.ends_with("\r\n\r\n"));
    }
}
