//! What is answered, as bytes.

use bytes::Bytes;
use ostler_core::error::CallError;
use ostler_wire::RequestId;

/// What is answered to a request.
#[derive(Debug, Clone)]
pub(super) enum AnswerBody {
    /// The text of the result.
    Result(Bytes),
    /// The text of the error object.
    Error(Bytes),
}

impl From<&CallError> for AnswerBody {
    fn from(error: &CallError) -> Self {
        match error.tool_result() {
            Some(result) => Self::Result(result.into()),
            None => Self::Error(error.rpc_object().into()),
        }
    }
}

impl AnswerBody {
    /// The whole response to the request `id`; none is one that could not be read.
    pub(super) fn to_response(&self, id: Option<&RequestId>) -> Bytes {
        let mut out = Vec::new();
        match (self, id) {
            (Self::Result(result), Some(id)) => ostler_wire::write_result(&mut out, id, result),
            (Self::Error(error), Some(id)) => ostler_wire::write_error_object(&mut out, id, error),
            (Self::Result(_), None) => {}
            (Self::Error(error), None) => {
                out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":");
                out.extend_from_slice(error);
                out.extend_from_slice(b"}\n");
            }
        }
        // Frames end with a line break, which means nothing in a message.
        out.pop();
        out.into()
    }
}
