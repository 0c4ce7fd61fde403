//! Writing frames: one line each, newline included.

use memchr::memchr2;

use crate::json_string::{push_number, push_string};
use crate::meta::RequestMeta;
use crate::params::Params;
use crate::request_id::RequestId;

/// Appends a member with an array whose elements are JSON texts: `"tools":[{…},{…}]`.
pub fn push_array_member<'a>(out: &mut Vec<u8>, member: &str, elements: impl Iterator<Item = &'a [u8]>) {
    push_string(out, member);
    out.extend_from_slice(b":[");
    for (at, element) in elements.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(element);
    }
    out.push(b']');
}

/// Appends a request of ours with the id `id`.
///
/// The client's parameters are written byte for byte, except that `_meta` gets our entries (see
/// [`RequestMeta`]) and line breaks between tokens become spaces. `params` is left out if it would be empty.
pub fn write_request(out: &mut Vec<u8>, id: u64, method: &str, params: &Params, meta: &RequestMeta<'_>) {
    let start = out.len();
    out.reserve(params.raw().len() + method.len() + 64);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    push_number(out, id);
    out.extend_from_slice(b",\"method\":");
    push_string(out, method);
    if params.spans.has_members || !meta.is_noop_for(params) {
        out.extend_from_slice(b",\"params\":");
        meta.write_params(out, params);
    }
    end_line(out, start);
}

/// Appends a request whose parameters, the text of a JSON value, are written as they are.
pub fn write_raw_request(out: &mut Vec<u8>, id: u64, method: &str, params: Option<&[u8]>) {
    let start = out.len();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    push_number(out, id);
    out.extend_from_slice(b",\"method\":");
    push_string(out, method);
    if let Some(params) = params {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params);
    }
    end_line(out, start);
}

/// Appends a notification. `params` is the text of a JSON value.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: Option<&[u8]>) {
    let start = out.len();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    push_string(out, method);
    if let Some(params) = params {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params);
    }
    end_line(out, start);
}

/// Appends `notifications/cancelled` for a request of ours.
pub fn write_cancelled(out: &mut Vec<u8>, request_id: u64, reason: &str) {
    let mut params = b"{\"requestId\":".to_vec();
    push_number(&mut params, request_id);
    params.extend_from_slice(b",\"reason\":");
    push_string(&mut params, reason);
    params.push(b'}');
    write_notification(out, "notifications/cancelled", Some(&params));
}

/// Appends an answer. `result` is the text of a JSON value.
pub fn write_result(out: &mut Vec<u8>, id: &RequestId, result: &[u8]) {
    let start = begin_response(out, id, result.len());
    out.extend_from_slice(b",\"result\":");
    out.extend_from_slice(result);
    end_line(out, start);
}

/// Returns the text of an error object. `data` is the text of a JSON value.
pub fn error_object(code: i64, message: &str, data: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + data.map_or(0, <[u8]>::len) + 48);
    push_error(&mut out, code, message, data);
    out
}

fn push_error(out: &mut Vec<u8>, code: i64, message: &str, data: Option<&[u8]>) {
    out.extend_from_slice(b"{\"code\":");
    out.extend_from_slice(code.to_string().as_bytes());
    out.extend_from_slice(b",\"message\":");
    push_string(out, message);
    if let Some(data) = data {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(data);
    }
    out.push(b'}');
}

/// Appends an error answer. `data` is the text of a JSON value.
pub fn write_error(out: &mut Vec<u8>, id: &RequestId, code: i64, message: &str, data: Option<&[u8]>) {
    let start = begin_response(out, id, message.len() + data.map_or(0, <[u8]>::len));
    out.extend_from_slice(b",\"error\":");
    push_error(out, code, message, data);
    end_line(out, start);
}

/// Appends an error answer whose whole error object, the text of a JSON value, is written as it is.
pub fn write_error_object(out: &mut Vec<u8>, id: &RequestId, error: &[u8]) {
    let start = begin_response(out, id, error.len());
    out.extend_from_slice(b",\"error\":");
    out.extend_from_slice(error);
    end_line(out, start);
}

fn begin_response(out: &mut Vec<u8>, id: &RequestId, body: usize) -> usize {
    let start = out.len();
    out.reserve(id.raw().len() + body + 64);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.raw());
    start
}

/// Closes the frame that began at `start`. JSON allows raw line breaks only between tokens, where a space is
/// equivalent, so a pretty-printed value becomes one line without being parsed. Carriage returns are replaced
/// too: peers that read in text mode take one for the end of a line.
fn end_line(out: &mut Vec<u8>, start: usize) {
    let mut rest = &mut out[start..];
    while let Some(at) = memchr2(b'\n', b'\r', rest) {
        rest[at] = b' ';
        rest = &mut rest[at + 1..];
    }
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
