//! Resource patterns of a role, matched against every form of a URI.

use super::uri_normalize::{self, MissingParts, UriForm};
use super::{Rule, Subject, ToolFilter, glob};

/// Normalized forms of a filter's resource patterns, beside the patterns as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UriPatterns {
    allow: Vec<NormalizedPattern>,
    deny: Vec<NormalizedPattern>,
}

/// One form of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NormalizedPattern {
    /// The index of the pattern in its list.
    pattern_index: usize,
    pattern: String,
    /// Components missing in this form; it is matched only against forms of a URI that lack at least the
    /// same.
    missing: MissingParts,
}

/// Returns every form in which a server may read a URI; `None` if the forms are ambiguous, so that no rule
/// can decide about it.
pub fn uri_forms(uri: &str) -> Option<Vec<String>> {
    let forms = uri_normalize::forms(uri)?;
    Some(forms.into_iter().map(|form| form.text).collect())
}

impl UriPatterns {
    pub(super) fn from_filter(filter: &ToolFilter) -> Self {
        // A deny pattern with a query, a user or a port must not deny every other one.
        Self {
            allow: normalize(&filter.allow, MissingParts::ALL),
            deny: normalize(&filter.deny, MissingParts::HOST),
        }
    }

    /// Decides about the other forms of a URI that is allowed as written; `None` if all of them are allowed
    /// too.
    pub(super) fn rule<'f>(&self, filter: &'f ToolFilter, prefix: &str, uri: &str) -> Option<Rule<'f>> {
        let Some(forms) = uri_normalize::forms(uri) else { return Some(Rule::AmbiguousUri) };
        let forms = || forms.iter().map(|UriForm { text, missing: cut }| (format!("{prefix}{text}"), *cut));
        let denied = forms().find_map(|(name, _)| self.denied(filter, &name));
        denied.or_else(|| {
            // The first form is the URI as written, which a pattern has allowed already.
            let mut others = forms().skip(1);
            let is_allowed = |(name, cut): (String, MissingParts)| {
                let normal = self.allow.iter().filter(|normal| cut.contains(normal.missing));
                filter
                    .allow
                    .iter()
                    .chain(normal.map(|normal| &normal.pattern))
                    .any(|it| glob::is_match(it, &name))
            };
            (!others.all(is_allowed)).then_some(Rule::Unmatched)
        })
    }

    /// Returns the pattern that denies a form. A path with a trailing slash is also matched without it.
    fn denied<'f>(&self, filter: &'f ToolFilter, name: &str) -> Option<Rule<'f>> {
        let is_match = |pattern: &str| {
            glob::is_match(pattern, name) || glob::is_match(pattern, name.trim_end_matches('/'))
        };
        let written = filter.deny.iter().find(|pattern| is_match(pattern));
        let normal = || self.deny.iter().find(|normal| is_match(&normal.pattern));
        let pattern = written.or_else(|| filter.deny.get(normal()?.pattern_index));
        pattern.map(|pattern| Rule::Denied(pattern))
    }
}

/// Returns the forms of all resource patterns of a list that differ from the patterns themselves.
fn normalize(patterns: &[String], cuts: MissingParts) -> Vec<NormalizedPattern> {
    let mut all = Vec::new();
    for (of, pattern) in patterns.iter().enumerate() {
        let kind = Subject::Resource("").prefix();
        let Some(at) = pattern.find(kind).map(|at| at + kind.len()) else { continue };
        let (prefix, uri) = pattern.split_at(at);
        let forms = uri_normalize::pattern_forms(uri, cuts).into_iter().filter(|form| form.text != uri);
        all.extend(forms.map(|UriForm { text, missing: cut }| NormalizedPattern {
            pattern_index: of,
            pattern: format!("{prefix}{text}"),
            missing: cut,
        }));
    }
    all
}
