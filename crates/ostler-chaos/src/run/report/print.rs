//! Report as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{ErrorKind, Write as _};

use ostler_chaos::check::Evidence;

use super::{EndCounts, PromiseOutcome, PromiseReport, RunReport};

/// The most violations that are shown in full.
pub(super) const SHOWN: usize = 10;

impl RunReport {
    pub(crate) fn print(&self, is_json: bool) -> anyhow::Result<()> {
        let text = if is_json { serde_json::to_string_pretty(self)? + "\n" } else { self.text()? };
        match std::io::stdout().write_all(text.as_bytes()) {
            // A closed pipe means that the reader has enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    fn text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        self.print_calls(&mut out)?;
        self.print_acts(&mut out)?;
        self.print_vitals(&mut out)?;
        self.print_violations(&mut out)?;
        self.print_verdict(&mut out)?;
        Ok(out)
    }

    fn print_calls(&self, out: &mut String) -> fmt::Result {
        table(out, "WAY", &self.by_way)?;
        table(out, "PURPOSE", &self.by_purpose)?;
        writeln!(out, "\n{:<44}{:>9}", "WHY NOT GOOD", "CALLS")?;
        for (reason, count) in &self.reasons {
            writeln!(out, "{reason:<44}{count:>9}")?;
        }
        Ok(())
    }

    fn print_acts(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "\n{:<16}{:>7}{:>11}{:>10}{:>10}{:>10}",
            "ACT", "DONE", "RECOVERED", "P50 ms", "P99 ms", "MAX ms"
        )?;
        for (act, count) in &self.acts {
            match self.recoveries.get(act) {
                Some(it) if it.count > 0 => writeln!(
                    out,
                    "{act:<16}{count:>7}{:>11}{:>10.1}{:>10.1}{:>10.1}",
                    it.count, it.p50_ms, it.p99_ms, it.max_ms
                )?,
                _ => writeln!(out, "{act:<16}{count:>7}")?,
            }
        }
        Ok(())
    }

    fn print_vitals(&self, out: &mut String) -> fmt::Result {
        let unknown: u64 = self.by_way.values().map(|ends| ends.unknown).sum();
        writeln!(out, "\n{} executions, {unknown} unknown, {:.0} s", self.executions, self.seconds)?;
        let Some(vitals) = &self.vitals else { return Ok(()) };
        let (begin, end) = (vitals.at_begin, vitals.at_end);
        writeln!(out, "\n{:<16}{:>9}{:>9}", "DAEMON", "BEGIN", "END")?;
        writeln!(out, "{:<16}{:>9}{:>9}", "rss KiB", begin.rss_kib, end.rss_kib)?;
        writeln!(out, "{:<16}{:>9}{:>9}", "descriptors", begin.descriptors, end.descriptors)?;
        writeln!(out, "{:<16}{:>9}{:>9}", "processes", begin.processes, end.processes)?;
        writeln!(out, "{:<16}{:>9}{:>9}", "zombies", begin.zombies, end.zombies)?;
        Ok(())
    }

    fn print_violations(&self, out: &mut String) -> fmt::Result {
        for (violation, excerpt) in self.violations.iter().zip(&self.excerpts).take(SHOWN) {
            writeln!(out, "\nviolation: {violation}\n{excerpt}")?;
        }
        if self.violations.len() > SHOWN {
            writeln!(out, "… and {} more", self.violations.len() - SHOWN)?;
        }
        for mishap in &self.mishaps {
            writeln!(out, "\nmishap: {mishap}")?;
        }
        if let (false, Some(again)) = (self.is_good(), &self.again) {
            writeln!(out, "\nagain: {again}")?;
        }
        Ok(())
    }

    /// Prints the verdict, which counts promises and one check of the run itself.
    fn print_verdict(&self, out: &mut String) -> fmt::Result {
        writeln!(out)?;
        for PromiseReport { evidence: Evidence { promise, count, of }, ruling } in &self.promises {
            let promise = format!("{promise:?}");
            writeln!(out, "{ruling:<11}{promise:<18}{count} {of}")?;
        }
        let (run, log) = (self.run_outcome(), self.log_lines);
        let log =
            log.map_or("there is no daemon.log".into(), |lines| format!("{lines} lines of the daemon's log"));
        writeln!(out, "{run:<11}{:<18}{} mishaps, {log}", "the run itself", self.mishaps.len())?;
        let all = || self.promises.iter().map(|verdict| verdict.ruling).chain([run]);
        let count = |wanted| all().filter(|ruling| *ruling == wanted).count();
        writeln!(
            out,
            "{} violations; {} promises and the run itself:",
            self.violations.len(),
            self.promises.len()
        )?;
        match count(PromiseOutcome::NotTried) {
            0 => {}
            untried => writeln!(out, "{untried} not tried, as the records hold nothing about them")?,
        }
        writeln!(out, "{} passed, {} failed", count(PromiseOutcome::Kept), count(PromiseOutcome::Broken))
    }

    /// Returns the outcome of the run itself, beside all promises.
    fn run_outcome(&self) -> PromiseOutcome {
        match self.log_lines {
            _ if !self.mishaps.is_empty() => PromiseOutcome::Broken,
            None => PromiseOutcome::NotTried,
            Some(_) => PromiseOutcome::Kept,
        }
    }
}

fn table(out: &mut String, title: &str, rows: &BTreeMap<String, EndCounts>) -> fmt::Result {
    writeln!(out, "\n{title:<16}{:>9}{:>9}{:>9}{:>9}", "CALLS", "GOOD", "FAILED", "UNKNOWN")?;
    for (name, EndCounts { calls, good, failed, unknown }) in rows {
        writeln!(out, "{name:<16}{calls:>9}{good:>9}{failed:>9}{unknown:>9}")?;
    }
    Ok(())
}
