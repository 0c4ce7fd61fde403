//! Error codes of JSON-RPC and MCP.

/// The bytes are not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The JSON is not a request.
pub const INVALID_REQUEST: i64 = -32600;
/// The peer does not know the method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters do not fit the method; also an unknown tool or prompt.
pub const INVALID_PARAMS: i64 = -32602;
/// The peer failed internally.
pub const INTERNAL_ERROR: i64 = -32603;
/// Legacy servers send this for an unknown resource; modern ones send [`INVALID_PARAMS`].
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// Modern: an HTTP header contradicts the body.
pub const HEADER_MISMATCH: i64 = -32020;
/// Modern: the request needs a client capability that was not declared.
pub const MISSING_CAPABILITY: i64 = -32021;
/// Modern: the protocol version is not supported; `data.supported` lists those that are.
pub const UNSUPPORTED_VERSION: i64 = -32022;
