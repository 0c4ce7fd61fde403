//! The report as people read it.

use std::collections::{BTreeMap, HashSet};

use ostler_chaos::check::Promise;

use super::{Ends, Report};

/// So many violations of one run are shown in full.
const SHOWN: usize = 10;

impl Report {
    pub(crate) fn print(&self, is_json: bool) -> anyhow::Result<()> {
        if is_json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        self.print_calls();
        self.print_acts();
        self.print_vitals();
        self.print_violations();
        self.print_verdict();
        Ok(())
    }

    fn print_calls(&self) {
        table("WAY", &self.by_way);
        table("PURPOSE", &self.by_purpose);
        println!("\n{:<44}{:>9}", "WHY NOT GOOD", "CALLS");
        for (reason, count) in &self.reasons {
            println!("{reason:<44}{count:>9}");
        }
    }

    fn print_acts(&self) {
        println!(
            "\n{:<16}{:>7}{:>11}{:>10}{:>10}{:>10}",
            "ACT", "DONE", "RECOVERED", "P50 ms", "P99 ms", "MAX ms"
        );
        for (act, count) in &self.acts {
            match self.recoveries.get(act) {
                Some(it) if it.count > 0 => println!(
                    "{act:<16}{count:>7}{:>11}{:>10.1}{:>10.1}{:>10.1}",
                    it.count, it.p50_ms, it.p99_ms, it.max_ms
                ),
                _ => println!("{act:<16}{count:>7}"),
            }
        }
    }

    fn print_vitals(&self) {
        let unknown: u64 = self.by_way.values().map(|ends| ends.unknown).sum();
        println!("\n{} executions, {unknown} unknown, {:.0} s", self.executions, self.seconds);
        let Some(vitals) = &self.vitals else { return };
        let (begin, end) = (vitals.at_begin, vitals.at_end);
        println!("\n{:<16}{:>9}{:>9}", "DAEMON", "BEGIN", "END");
        println!("{:<16}{:>9}{:>9}", "rss KiB", begin.rss_kib, end.rss_kib);
        println!("{:<16}{:>9}{:>9}", "descriptors", begin.descriptors, end.descriptors);
        println!("{:<16}{:>9}{:>9}", "processes", begin.processes, end.processes);
        println!("{:<16}{:>9}{:>9}", "zombies", begin.zombies, end.zombies);
        vitals.mishaps.iter().for_each(|mishap| println!("mishap: {mishap}"));
    }

    fn print_violations(&self) {
        for (violation, excerpt) in self.violations.iter().zip(&self.excerpts).take(SHOWN) {
            println!("\nviolation: {violation}\n{excerpt}");
        }
        if self.violations.len() > SHOWN {
            println!("… and {} more", self.violations.len() - SHOWN);
        }
        if let (false, Some(again)) = (self.is_good(), &self.again) {
            println!("\nagain: {again}");
        }
    }

    /// The last line counts promises, and one check more for what no record shows.
    fn print_verdict(&self) {
        let broken: HashSet<Promise> = self.violations.iter().map(|violation| violation.promise).collect();
        println!();
        for promise in Promise::ALL {
            println!("{} {promise:?}", if broken.contains(&promise) { "broken" } else { "kept  " });
        }
        println!("{} violations", self.violations.len());
        let has_mishaps = self.vitals.as_ref().is_some_and(|vitals| !vitals.mishaps.is_empty());
        let failed = broken.len() + usize::from(has_mishaps);
        println!("{} passed, {failed} failed", Promise::ALL.len() + 1 - failed);
    }
}

fn table(title: &str, rows: &BTreeMap<String, Ends>) {
    println!("\n{title:<16}{:>9}{:>9}{:>9}{:>9}", "CALLS", "GOOD", "FAILED", "UNKNOWN");
    for (name, Ends { calls, good, failed, unknown }) in rows {
        println!("{name:<16}{calls:>9}{good:>9}{failed:>9}{unknown:>9}");
    }
}
