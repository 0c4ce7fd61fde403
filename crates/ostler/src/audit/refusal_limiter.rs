//! Refusals, so many a second of each principal and no more: refusing is free, and a caller that is refused as
//! often as it can must not fill the disk. The rest are counted, in one row a second.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::row::{AuditRow, RowFields, RowKind};

/// Refusals of one principal that get a row of their own in one second; the rest share one.
const ROWS_PER_SECOND: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);
/// Principals that are counted one by one. Those beyond share one count.
const MAX_PRINCIPALS: usize = 1_024;

/// Counts refusals by principal; those without a credential have none and are one.
#[derive(Debug, Default)]
pub(super) struct RefusalLimiter {
    /// At most [`PRINCIPALS`].
    windows: HashMap<String, RefusalWindow>,
    /// Of all principals beyond that.
    overflow: Option<RefusalWindow>,
    /// When the first of those that are only counted is to get its row.
    due: Option<Instant>,
}

#[derive(Debug)]
struct RefusalWindow {
    since: Instant,
    /// Refusals that got a row since then.
    rows: u32,
    /// Those that have none yet.
    unrecorded: Option<RefusalCount>,
}

#[derive(Debug)]
struct RefusalCount {
    principal: Box<str>,
    role: Box<str>,
    count: u64,
    /// When the first and the last were, in microseconds since 1970.
    first: i64,
    last: i64,
    /// By outcome; there are some twenty.
    outcomes: Vec<(&'static str, u64)>,
}

impl RefusalLimiter {
    /// Whether a refusal gets a row. If not, it is counted.
    pub(super) fn admit(&mut self, refusal: &AuditRow, now: Instant) -> bool {
        let said = refusal.fields.unpack();
        let is_known = self.windows.contains_key(said.principal);
        if !is_known && self.windows.len() >= MAX_PRINCIPALS {
            // Whoever has been quiet for a second is not counted any more.
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

    /// Returns how many have no row yet.
    pub(super) fn unrecorded(&self) -> u64 {
        self.windows
            .values()
            .chain(&self.overflow)
            .filter_map(|window| Some(window.unrecorded.as_ref()?.count))
            .sum()
    }

    /// When there is something to take.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Takes the rows of those that were only counted, up to `now`.
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

    /// Takes all of them, at the end.
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
