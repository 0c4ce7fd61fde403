//! Manifest: the part of the host's catalog that a worker's role may use.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// The servers and tools that a worker may use.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Hash of servers, tools and timeouts: equal on every host that serves the same catalog.
    pub version: String,
    /// Name of the host that built the manifest.
    pub host: String,
    /// The host's clock when it built the manifest, in milliseconds since 1970.
    pub time: u64,
    /// Servers, sorted by name.
    pub servers: Vec<ManifestServer>,
}

/// One server of a manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestServer {
    /// Name of the server.
    pub name: String,
    /// Tool definitions, byte for byte and in the server's order.
    pub tools: Vec<Box<RawValue>>,
    /// JSON-RPC error object; present when the host could not refresh `tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<RawValue>>,
    /// Idle timeout of a call in milliseconds; progress restarts it.
    pub call_timeout: u64,
    /// Upper bound on the duration of a call, in milliseconds.
    pub max_call_time: u64,
    /// Position among the host's servers; the rank decides which server owns a URI that several claim.
    #[serde(default)]
    pub rank: usize,
}

impl Manifest {
    /// Builds a manifest and computes its version.
    pub fn new(host: String, time: u64, servers: Vec<ManifestServer>) -> Self {
        Self { version: version_of(&servers), host, time, servers }
    }
}

/// Returns a hash of everything but ranks and errors: neither changes what the worker may use.
fn version_of(servers: &[ManifestServer]) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    };
    for server in servers {
        add(&server.name);
        add(&server.tools.len().to_string());
        server.tools.iter().for_each(|tool| add(tool.get()));
        add(&server.call_timeout.to_string());
        add(&server.max_call_time.to_string());
    }
    data_encoding::HEXLOWER.encode(&hash.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, tools: &[&str]) -> ManifestServer {
        let raw = |tool: &&str| RawValue::from_string((*tool).to_owned());
        let tools = tools.iter().map(raw).collect::<Result<_, _>>();
        let tools = tools.unwrap_or_else(|error| panic!("{error}"));
        ManifestServer { name: name.into(), tools, error: None, call_timeout: 1, max_call_time: 2, rank: 0 }
    }

    #[test]
    fn the_version_changes_with_what_may_be_used_and_with_nothing_else() {
        let one = Manifest::new("a".into(), 1, vec![listed("s", &["{\"name\":\"x\"}"])]);
        let same = Manifest::new("b".into(), 2, vec![listed("s", &["{\"name\":\"x\"}"])]);
        assert_eq!(one.version, same.version);
        for other in [
            vec![],
            vec![listed("s", &[])],
            vec![listed("t", &["{\"name\":\"x\"}"])],
            vec![listed("s", &["{\"name\":\"y\"}"])],
            vec![listed("s", &["{\"name\":\"x\"}"]), listed("t", &[])],
        ] {
            assert_ne!(Manifest::new("a".into(), 1, other).version, one.version);
        }
    }

    #[test]
    fn tools_pass_byte_for_byte() {
        let tool = r#"{ "name":"x", "big": 123456789012345678901234567890, "b":1, "a":2 }"#;
        let manifest = Manifest::new("a".into(), 1, vec![listed("s", &[tool])]);
        let text = serde_json::to_string(&manifest).unwrap_or_else(|error| panic!("{error}"));
        assert!(text.contains(tool), "{text}");
    }
}
