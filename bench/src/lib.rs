//! Arguments and process accounting, shared by all programs of this crate.
#![allow(clippy::unwrap_used, reason = "a benchmark stops when something is wrong")]

pub mod process;

use std::collections::HashMap;

/// `--key value` pairs, bare `--flag`s, positionals, and everything after `--`.
#[derive(Default, Debug)]
pub struct Args {
    pub pos: Vec<String>,
    pub rest: Vec<String>,
    opts: HashMap<String, Vec<String>>,
}

impl Args {
    pub fn parse() -> Self {
        let mut out = Args::default();
        let mut it = std::env::args().skip(1).peekable();
        while let Some(a) = it.next() {
            if a == "--" {
                out.rest = it.collect();
                break;
            }
            match a.strip_prefix("--") {
                Some(k) => {
                    let v = match it.peek() {
                        Some(n) if !n.starts_with("--") => it.next().unwrap(),
                        _ => String::new(),
                    };
                    out.opts.entry(k.to_string()).or_default().push(v);
                }
                None => out.pos.push(a),
            }
        }
        out
    }
    pub fn get(&self, k: &str) -> Option<&str> {
        self.opts.get(k).and_then(|v| v.last()).map(|s| s.as_str())
    }
    pub fn all(&self, k: &str) -> &[String] {
        self.opts.get(k).map(|v| v.as_slice()).unwrap_or(&[])
    }
    pub fn flag(&self, k: &str) -> bool {
        self.opts.contains_key(k)
    }
    pub fn num<T: std::str::FromStr>(&self, k: &str, default: T) -> T {
        match self.get(k) {
            None => default,
            Some(v) => v.parse().unwrap_or_else(|_| panic!("--{k}: bad number {v:?}")),
        }
    }
}
