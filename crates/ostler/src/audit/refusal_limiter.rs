//! Rate limit of refusal rows per principal: a refusal costs a caller nothing, and must not fill the disk. Refusals
//! beyond the limit are counted, in one row a second.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::row::{AuditRow, RowFields, RowKind};

/// Refusals of one principal per second with a row of their own; the rest share one row.
const ROWS_PER_SECOND: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);
/// Upper bound on principals with a count of their own. Others share one count.
const MAX_PRINCIPALS: usize = 1_024;

/// Counter of refusals by principal. Requests without a credential share one principal.
#[derive(Debug, Default)]
pub(super) struct RefusalLimiter {
    /// At most [`MAX_PRINCIPALS`].
    windows: HashMap<String, RefusalWindow>,
    /// Window of all principals beyond that.
    overflow: Option<RefusalWindow>,
    /// Time at which the oldest refusals without a row get theirs.
    due: Option<Instant>,
}

#[derive(Debug)]
struct RefusalWindow {
    since: Instant,
    /// Refusals with a row in this window.
    rows: u32,
    /// Refusals without a row.
    unrecorded: Option<RefusalCount>,
}

#[derive(Debug)]
struct RefusalCount {
    principal: Box<str>,
    role: Box<str>,
    count: u64,
    /// Times of the first and of the last one, in microseconds since 1970.
    first: i64,
    last: i64,
    /// Counts by outcome; there are some twenty outcomes.
    outcomes: Vec<(&'static str, u64)>,
}

impl RefusalLimiter {
    /// Returns whether a refusal gets a row; counts it otherwise.
    pub(super) fn admit(&mut self, refusal: &AuditRow, now: Instant) -> bool {
        let said = refusal.fields.unpack();
        let is_known = self.windows.contains_key(said.principal);
        if !is_known && self.windows.len() >= MAX_PRINCIPALS {
            // Principals that were idle for a second are evicted.
            self.windows.retain(|_, window| !window.is_idle(now));
        }
        let is_counted = is_known || self.windows.len() < MAX_PRINCIPALS;
        let new = || RefusalWindow { since: now, rows: 0, unrecorded: None };
        let window = match is_counted {
            true => self.windows.entry_ref(said.principal).or_insert_with(new),
            false => self.overflow.get_or_insert_with(new),
        };
        if now.saturating_duration_since(window.since) >= SECOND {
            (window.since, window.rows) = (now, 0);
        }
        if window.rows < ROWS_PER_SECOND {
            window.rows += 1;
            return true;
        }
        let (principal, role) = if is_counted { (said.principal, said.role) } else { ("", "") };
        let counted = window.unrecorded.get_or_insert_with(|| RefusalCount {
            principal: principal.into(),
            role: role.into(),
            count: 0,
            first: refusal.at,
            last: refusal.at,
            outcomes: Vec::new(),
        });
        counted.add(refusal);
        let due = window.since + SECOND;
        self.due = Some(self.due.map_or(due, |first| first.min(due)));
        false
    }

    /// Returns the number of refusals without a row.
    pub(super) fn unrecorded(&self) -> u64 {
        self.windows
            .values()
            .chain(&self.overflow)
            .filter_map(|window| Some(window.unrecorded.as_ref()?.count))
            .sum()
    }

    /// Returns the time at which [`take_due`](Self::take_due) has rows.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Takes the rows of counted refusals that are due at `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<AuditRow> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let windows = self.windows.values_mut().chain(&mut self.overflow);
        let is_due = |window: &&mut RefusalWindow| now.saturating_duration_since(window.since) >= SECOND;
        let counted = windows.filter(is_due).filter_map(|window| window.unrecorded.take());
        let rows = counted.map(|counted| counted.row()).collect();
        self.windows.retain(|_, window| !window.is_idle(now));
        let left = self.windows.values().chain(&self.overflow).filter(|window| window.unrecorded.is_some());
        self.due = left.map(|window| window.since + SECOND).min();
        rows
    }

    /// Takes the rows of all counted refusals, at the end.
    pub(super) fn take_all(&mut self) -> Vec<AuditRow> {
        let windows = std::mem::take(self);
        let counted =
            windows.windows.into_values().chain(windows.overflow).filter_map(|window| window.unrecorded);
        counted.map(|counted| counted.row()).collect()
    }
}

impl RefusalWindow {
    fn is_idle(&self, now: Instant) -> bool {
        self.unrecorded.is_none() && now.saturating_duration_since(self.since) >= SECOND
    }
}

impl RefusalCount {
    fn add(&mut self, refusal: &AuditRow) {
        self.count += 1;
        self.last = refusal.at;
        match self.outcomes.iter_mut().find(|(outcome, _)| *outcome == refusal.outcome) {
            Some((_, count)) => *count += 1,
            None => self.outcomes.push((refusal.outcome, 1)),
        }
    }

    fn row(&self) -> AuditRow {
        let outcomes: Vec<String> =
            self.outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
        let detail = format!("too many in a second for a row each: {}", outcomes.join(", "));
        let said = RowFields {
            principal: &self.principal,
            role: &self.role,
            action: "others",
            detail: &detail,
            ..RowFields::default()
        };
        let took = Duration::from_micros((self.last - self.first).unsigned_abs());
        let row = AuditRow::now(RowKind::Refusal, "refused", &said);
        AuditRow { at: self.last, count: Some(self.count), took: Some(took), ..row }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(principal: &str, outcome: &'static str) -> AuditRow {
        AuditRow::now(
            RowKind::Refusal,
            outcome,
            &RowFields { principal, role: "reader", ..RowFields::default() },
        )
    }

    fn admitted(flood: &mut RefusalLimiter, principal: &str, count: usize, now: Instant) -> usize {
        (0..count).filter(|_| flood.admit(&refusal(principal, "denied"), now)).count()
    }

    #[test]
    fn a_flood_becomes_ten_rows_a_second_and_a_count() {
        let (mut flood, start) = (RefusalLimiter::default(), Instant::now());
        assert_eq!(admitted(&mut flood, "bob", 1_000, start), 10);
        assert!(!flood.admit(&refusal("bob", "unknown-tool"), start));
        assert_eq!(admitted(&mut flood, "ann", 5, start), 5, "one principal takes nothing from another");
        assert!(flood.take_due(start).is_empty());
        assert_eq!(flood.due(), Some(start + SECOND));
        let rows = flood.take_due(start + SECOND);
        let said = rows[0].fields.unpack();
        assert_eq!((rows.len(), rows[0].count, said.principal, said.role), (1, Some(991), "bob", "reader"));
        assert_eq!(said.detail, "too many in a second for a row each: denied 990, unknown-tool 1");
        assert_eq!(admitted(&mut flood, "bob", 12, start + SECOND), 10);
        assert_eq!(flood.take_all()[0].count, Some(2));
    }

    #[test]
    fn what_is_counted_is_never_forgotten_however_late_it_is_taken() {
        let (mut flood, start) = (RefusalLimiter::default(), Instant::now());
        for second in 0..5 {
            admitted(&mut flood, "bob", 100, start + SECOND * second);
        }
        assert_eq!(flood.take_due(start + SECOND * 9)[0].count, Some(450));
    }

    #[test]
    fn a_crowd_of_principals_is_counted_together_in_bounded_memory() {
        let (mut flood, start) = (RefusalLimiter::default(), Instant::now());
        let names: Vec<String> = (0..MAX_PRINCIPALS * 3).map(|n| n.to_string()).collect();
        let rows: usize = names.iter().map(|name| admitted(&mut flood, name, 1, start)).sum();
        assert_eq!((rows, flood.windows.len()), (MAX_PRINCIPALS + 10, MAX_PRINCIPALS));
        let rest = flood.take_due(start + SECOND);
        assert_eq!((rest.len(), rest[0].count), (1, Some(2 * MAX_PRINCIPALS as u64 - 10)));
        assert_eq!(rest[0].fields.unpack().principal, "");
        assert_eq!(flood.windows.len(), 0);
    }
}
