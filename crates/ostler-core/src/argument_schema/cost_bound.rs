//! Cost bound of a check: an upper bound on its steps, known before the check begins.
//!
//! A schema of a few lines can make a validator run forever: definitions that refer to each other twice
//! double the work at every level. So the schema is walked once as a graph. An edge leads to a schema of the
//! same value (`allOf`, `$ref`) or of a value inside it (`properties`, `items`). The graph gives the number
//! of schemas that a value at each depth can meet, and the depths of the values in the arguments give the
//! number of steps.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::{BoundedArguments, UnusableSchema};
use crate::error::truncate;

/// Most steps of a check; about 50 ms.
const MAX_STEPS: u64 = 1_000_000;
/// Deepest nesting of steps, each of which takes a few stack frames.
const MAX_NESTING: u64 = 256;
/// Most schemas in one schema, with every reference expanded.
const MAX_SCHEMAS: usize = 20_000;
/// Deepest nesting of schemas, with every reference expanded once.
const MAX_SCHEMA_DEPTH: usize = 200;
/// Most patterns of a schema, and the longest.
const MAX_PATTERNS: usize = 64;
const MAX_PATTERN_LEN: usize = 1_000;
/// Bytes of text whose comparison or counting is one step.
const TEXT_BYTES_PER_STEP: usize = 1 << 10;
/// Passes that `unevaluatedProperties` and `unevaluatedItems` make over the keywords beside them.
const UNEVALUATED_PASSES: u64 = 3;
/// Deepest value: the nesting limit of the JSON parser.
const MAX_VALUE_DEPTH: usize = 128;

const ENDLESS_RECURSION: UnusableSchema = UnusableSchema::Unbounded("it refers to itself without end");
const TOO_LARGE: UnusableSchema =
    UnusableSchema::Unbounded("it is too large with its references written out");

/// Costs of checks by one schema.
#[derive(Debug)]
pub(super) struct CostBound {
    /// Steps for one value, by its depth.
    steps: Vec<u64>,
    /// Steps for a value deeper than `steps` covers.
    steps_beyond: u64,
    /// Longest chain of references between schemas of one value.
    height: u64,
}

impl CostBound {
    pub(super) fn from_schema(schema: &Value) -> Result<Self, UnusableSchema> {
        let mut graph = SchemaGraph::new(schema);
        graph.walk(schema, WalkDepth { depth: 0, descents: 0 })?;
        // Patterns are not matched, so another keyword must not depend on a pattern that refuses.
        if graph.patterns > 0 && graph.can_negate {
            return Err(UnusableSchema::Unbounded(
                "it has patterns beside `not`, `oneOf`, `if` or `contains`",
            ));
        }
        let (steps, deeper) = graph.steps();
        let height = graph.heights().into_iter().max().unwrap_or(1);
        Ok(Self { steps, steps_beyond: deeper, height })
    }

    /// Bounds a check of arguments; `None` if the bound is too large.
    pub(super) fn bound(&self, value: Value) -> Option<BoundedArguments> {
        let mut total = StepCount { steps: 0, depth: 0 };
        self.count(&value, 0, &mut total);
        let nesting = (total.depth as u64 + 1).saturating_mul(self.height);
        (total.steps <= MAX_STEPS && nesting <= MAX_NESTING).then_some(BoundedArguments {
            value,
            steps: total.steps,
            nesting,
        })
    }

    fn count(&self, value: &Value, depth: usize, total: &mut StepCount) {
        total.depth = total.depth.max(depth);
        let text = value.as_str().map_or(0, |text| (text.len() / TEXT_BYTES_PER_STEP) as u64);
        let steps = self.steps.get(depth).copied().unwrap_or(self.steps_beyond).saturating_mul(1 + text);
        total.steps = total.steps.saturating_add(steps);
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.count(item, depth + 1, total)),
            Value::Object(members) => members.values().for_each(|item| self.count(item, depth + 1, total)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Counts the values in a value; a long text counts more than once.
fn count_values(value: &Value) -> u64 {
    match value {
        Value::String(text) => 1 + (text.len() / TEXT_BYTES_PER_STEP) as u64,
        Value::Array(items) => 1 + items.iter().map(count_values).sum::<u64>(),
        Value::Object(members) => 1 + members.values().map(count_values).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

struct StepCount {
    steps: u64,
    depth: usize,
}

/// A schema inside the schema.
#[derive(Default)]
struct SchemaNode {
    /// Steps of its own keywords.
    own_steps: u64,
    /// Schemas of the same value, each with its number of passes.
    same: Vec<(usize, u64)>,
    /// Schemas of values inside.
    inner: Vec<(ChildKind, usize)>,
    /// Value depth at which the walk entered this schema, while it is inside.
    entered: Option<usize>,
}

/// Children of a value that a schema applies to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ChildKind {
    Item,
    Member,
    Named(usize),
}

/// Current depth of the walk.
#[derive(Clone, Copy)]
struct WalkDepth {
    depth: usize,
    descents: usize,
}

struct SchemaGraph<'a> {
    root: &'a Value,
    /// True for draft 4 and older, where `id` is what later drafts call `$id`.
    is_old: bool,
    nodes: Vec<SchemaNode>,
    /// Nodes by the address of their schema.
    id_by_address: HashMap<*const Value, usize>,
    names: HashMap<&'a str, usize>,
    /// Number of schemas visited, with references expanded.
    visited: usize,
    patterns: usize,
    /// True if a keyword may refuse a value because a schema accepts it.
    can_negate: bool,
}

/// An edge as the schema spells it.
enum Edge {
    Same,
    Inner(ChildKind),
}

impl<'a> SchemaGraph<'a> {
    fn new(root: &'a Value) -> Self {
        let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        Self {
            root,
            is_old: ["draft-04", "draft-03"].iter().any(|old| dialect.contains(old)),
            nodes: Vec::new(),
            id_by_address: HashMap::new(),
            names: HashMap::new(),
            visited: 0,
            patterns: 0,
            can_negate: false,
        }
    }

    /// Walks a schema with every reference expanded, except references into a schema that the walk is inside
    /// of.
    fn walk(&mut self, schema: &'a Value, path: WalkDepth) -> Result<usize, UnusableSchema> {
        self.visited += 1;
        if self.visited > MAX_SCHEMAS || path.depth > MAX_SCHEMA_DEPTH {
            return Err(TOO_LARGE);
        }
        let address = std::ptr::from_ref(schema);
        let is_new = !self.id_by_address.contains_key(&address);
        let id = *self.id_by_address.entry(address).or_insert(self.nodes.len());
        if is_new {
            self.nodes.push(SchemaNode { own_steps: 1, ..SchemaNode::default() });
        }
        match self.nodes[id].entered {
            Some(descents) if descents == path.descents => return Err(ENDLESS_RECURSION),
            Some(_) => return Ok(id),
            None => {}
        }
        let Value::Object(members) = schema else { return Ok(id) };
        if is_new {
            self.inspect(id, members)?;
        }
        self.nodes[id].entered = Some(path.descents);
        let passes = match members.keys().any(|key| key.starts_with("unevaluated")) {
            true => UNEVALUATED_PASSES,
            false => 1,
        };
        for (edge, schema) in self.edges(members)? {
            let depth = path.depth + 1;
            match edge {
                Edge::Same => {
                    let to = self.walk(schema, WalkDepth { depth, ..path })?;
                    if is_new {
                        self.nodes[id].same.push((to, passes));
                    }
                }
                Edge::Inner(slot) => {
                    let to = self.walk(schema, WalkDepth { depth, descents: path.descents + 1 })?;
                    if is_new {
                        self.nodes[id].inner.push((slot, to));
                    }
                }
            }
        }
        self.nodes[id].entered = None;
        Ok(id)
    }

    /// Adds up the steps of a schema's own keywords and refuses keywords that can't be followed.
    fn inspect(&mut self, id: usize, members: &'a Map<String, Value>) -> Result<(), UnusableSchema> {
        let is_root = id == 0;
        let id_key = if self.is_old { "id" } else { "$id" };
        if !is_root && members.get(id_key).is_some_and(Value::is_string) {
            return Err(UnusableSchema::Unbounded("it holds schemas with addresses of their own"));
        }
        if members.contains_key("$dynamicRef") || members.contains_key("$recursiveRef") {
            return Err(UnusableSchema::Unbounded("it has dynamic references"));
        }
        if members.contains_key("patternProperties") {
            return Err(UnusableSchema::Unbounded("it has patterns for names of properties"));
        }
        let compared = ["const", "enum", "required"].iter().filter_map(|key| members.get(*key));
        self.nodes[id].own_steps += compared.map(count_values).sum::<u64>();
        self.can_negate |= ["not", "oneOf", "if", "contains"].iter().any(|key| members.contains_key(*key));
        if let Some(pattern) = members.get("pattern").and_then(Value::as_str) {
            self.patterns += 1;
            if self.patterns > MAX_PATTERNS || pattern.len() > MAX_PATTERN_LEN {
                return Err(UnusableSchema::Unbounded("it has too many patterns, or too long ones"));
            }
        }
        Ok(())
    }

    /// Returns the schemas that a schema refers to.
    fn edges(&mut self, members: &'a Map<String, Value>) -> Result<Vec<(Edge, &'a Value)>, UnusableSchema> {
        let mut edges = Vec::new();
        for (key, value) in members {
            match (key.as_str(), value) {
                ("$ref", Value::String(to)) => edges.push((Edge::Same, self.resolve(to)?)),
                ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => {
                    edges.extend(all.iter().map(|schema| (Edge::Same, schema)));
                }
                ("not" | "if" | "then" | "else", schema) => edges.push((Edge::Same, schema)),
                ("dependentSchemas" | "dependencies", Value::Object(all)) => {
                    edges.extend(all.values().map(|schema| (Edge::Same, schema)));
                }
                ("items" | "prefixItems", Value::Array(all)) => {
                    edges.extend(all.iter().map(|schema| (Edge::Inner(ChildKind::Item), schema)));
                }
                ("items" | "additionalItems" | "unevaluatedItems" | "contains", schema) => {
                    edges.push((Edge::Inner(ChildKind::Item), schema));
                }
                ("properties", Value::Object(all)) => {
                    for (name, schema) in all {
                        let next = self.names.len();
                        let name = *self.names.entry(name).or_insert(next);
                        edges.push((Edge::Inner(ChildKind::Named(name)), schema));
                    }
                }
                ("additionalProperties" | "unevaluatedProperties" | "propertyNames", schema) => {
                    edges.push((Edge::Inner(ChildKind::Member), schema));
                }
                _ => {}
            }
        }
        Ok(edges)
    }

    /// Resolves a reference. Only references inside the schema are supported.
    fn resolve(&self, to: &str) -> Result<&'a Value, UnusableSchema> {
        let unresolved =
            || UnusableSchema::Invalid(format!("it refers to `{}`", truncate(to, super::MAX_MISTAKE_LEN)));
        let pointer = to.strip_prefix('#').ok_or_else(unresolved)?;
        let pointer = percent_decode_str(pointer).decode_utf8().map_err(|_| unresolved())?;
        self.root.pointer(&pointer).ok_or_else(unresolved)
    }

    /// Returns for each schema the length of the longest chain of schemas of one value that starts there.
    fn heights(&self) -> Vec<u64> {
        let mut heights = vec![1; self.nodes.len()];
        for id in self.topological_order().into_iter().rev() {
            let below = self.nodes[id].same.iter().map(|(to, _)| heights[*to]).max().unwrap_or(0);
            heights[id] = below + 1;
        }
        heights
    }

    /// Returns the schemas in an order in which each comes before those it refers to for the same value.
    fn topological_order(&self) -> Vec<usize> {
        let mut incoming = vec![0_usize; self.nodes.len()];
        self.nodes.iter().flat_map(|node| &node.same).for_each(|(to, _)| incoming[*to] += 1);
        let mut order: Vec<usize> = (0..self.nodes.len()).filter(|id| incoming[*id] == 0).collect();
        let mut next = 0;
        while let Some(id) = order.get(next).copied() {
            next += 1;
            for (to, _) in &self.nodes[id].same {
                incoming[*to] -= 1;
                if incoming[*to] == 0 {
                    order.push(*to);
                }
            }
        }
        order
    }

    /// Returns the steps for one value by its depth, and for a deeper one.
    fn steps(&self) -> (Vec<u64>, u64) {
        let order = self.topological_order();
        let mut times = vec![0_u64; self.nodes.len()];
        times[0] = 1;
        let mut steps = Vec::new();
        loop {
            for &id in &order {
                for &(to, passes) in &self.nodes[id].same {
                    times[to] = times[to].saturating_add(times[id].saturating_mul(passes));
                }
            }
            let costs =
                self.nodes.iter().zip(&times).map(|(node, times)| node.own_steps.saturating_mul(*times));
            steps.push(costs.fold(0, u64::saturating_add));
            let within = self.child_visits(&times);
            if within.iter().all(|times| *times == 0) {
                return (steps, 0);
            }
            // A value of that depth already exceeds the step limit.
            if steps.last().is_some_and(|steps| *steps > MAX_STEPS) || steps.len() > MAX_VALUE_DEPTH {
                return (steps, u64::MAX);
            }
            times = within;
        }
    }

    /// Returns how often each schema visits one child value, given the visits of its parent.
    fn child_visits(&self, times: &[u64]) -> Vec<u64> {
        let mut by_slot: HashMap<(ChildKind, usize), u64> = HashMap::new();
        for (node, times) in self.nodes.iter().zip(times).filter(|(_, times)| **times > 0) {
            for key in &node.inner {
                let sum = by_slot.entry(*key).or_default();
                *sum = sum.saturating_add(*times);
            }
        }
        let mut most = vec![0_u64; self.nodes.len()];
        let mut members = vec![0_u64; self.nodes.len()];
        for ((slot, to), sum) in &by_slot {
            match slot {
                ChildKind::Member => members[*to] = *sum,
                ChildKind::Item | ChildKind::Named(_) => most[*to] = most[*to].max(*sum),
            }
        }
        most.iter().zip(&members).map(|(most, members)| most.saturating_add(*members)).collect()
    }
}
