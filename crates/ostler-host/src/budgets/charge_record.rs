//! Records of budget charges in the journal.
//!
//! The file begins with a header and holds records of one size, so a record that was torn by a crash or a full disk is
//! the last one and is left out.

use std::collections::BTreeMap;

/// First bytes of the file: its type and the version of its format.
pub(super) const FILE_HEADER: &[u8; RECORD_SIZE] = b"ostler's charges of budgets, 1.\n";

/// Bytes of a record, and of the header.
pub(super) const RECORD_SIZE: usize = 32;

/// Calls that were charged at one time, or refunded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChargeRecord {
    /// Account that was charged.
    pub(super) account: u64,
    /// Time of the charge, in milliseconds since 1970.
    pub(super) at: u64,
    /// End of the charge's window, in milliseconds since 1970; the record is useless afterwards.
    pub(super) until: u64,
    /// Number of calls; negative for a refund.
    pub(super) calls: i64,
}

impl ChargeRecord {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for word in [self.account, self.at, self.until] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.calls.to_le_bytes());
    }

    fn read(bytes: &[u8; RECORD_SIZE]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Self { account: word(0), at: word(8), until: word(16), calls: word(24).cast_signed() }
    }
}

/// Reads a whole journal; `None` if the bytes are something else.
pub(super) fn read_all(bytes: &[u8]) -> Option<Vec<ChargeRecord>> {
    let (records, _torn) = bytes.as_chunks::<RECORD_SIZE>();
    let (mark, records) = records.split_first()?;
    (mark == FILE_HEADER).then(|| records.iter().map(ChargeRecord::read).collect())
}

/// Compacts charges to as few records as possible, without expired ones: refunded charges disappear, and charges of the
/// same time become one record. A charge by a clock that was ahead counts from now on: otherwise every run until then
/// would charge it again.
pub(super) fn compact(records: impl IntoIterator<Item = ChargeRecord>, now: u64) -> Vec<ChargeRecord> {
    let mut sums: BTreeMap<(u64, u64), (u64, i64)> = BTreeMap::new();
    for record in records {
        let (until, calls) = sums.entry((record.account, record.at)).or_default();
        *until = record.until.max(*until);
        *calls = calls.saturating_add(record.calls);
    }
    let lasting = sums.into_iter().filter(|&(_, (until, calls))| until > now && calls > 0);
    let at_latest_now = |((account, at), (until, calls)): ((u64, u64), (u64, i64))| {
        let ahead = at.saturating_sub(now);
        ChargeRecord { account, at: at - ahead, until: until.saturating_sub(ahead), calls }
    };
    lasting.map(at_latest_now).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(account: u64, at: u64, calls: i64) -> ChargeRecord {
        ChargeRecord { account, at, until: at + 100, calls }
    }

    fn written(records: &[ChargeRecord]) -> Vec<u8> {
        let mut bytes = FILE_HEADER.to_vec();
        records.iter().for_each(|record| record.write(&mut bytes));
        bytes
    }

    #[test]
    fn a_torn_record_is_left_out() {
        let records = [record(1, 10, 1), record(u64::MAX, 20, -1)];
        let bytes = written(&records);
        assert_eq!(read_all(&bytes), Some(records.to_vec()));
        for torn in 1..RECORD_SIZE {
            assert_eq!(read_all(&bytes[..bytes.len() - torn]), Some(records[..1].to_vec()));
        }
    }

    #[test]
    fn another_file_is_not_taken_for_a_journal() {
        assert_eq!(read_all(b""), None);
        assert_eq!(read_all(&[0; 128]), None);
        assert_eq!(read_all(FILE_HEADER), Some(Vec::new()));
    }

    #[test]
    fn what_was_given_back_and_what_is_over_takes_no_room() {
        let records =
            [record(1, 10, 1), record(1, 10, 1), record(1, 11, 1), record(2, 10, 1), record(1, 11, -1)];
        assert_eq!(compact(records, 50), [record(1, 10, 2), record(2, 10, 1)]);
        assert_eq!(compact(records, 110), []);
    }

    #[test]
    fn what_a_clock_that_was_ahead_has_charged_is_not_charged_anew_by_every_run() {
        let ahead = record(1, 1_000_000, 2);
        let first = compact([ahead, record(1, 40, 1)], 50);
        assert_eq!(first, [record(1, 40, 1), record(1, 50, 2)]);
        assert_eq!(compact(first, 145), [record(1, 50, 2)]);
        assert_eq!(compact([ahead], 50).into_iter().map(|it| it.until).max(), Some(150));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>) {
            let _ = read_all(&bytes);
            let _ = read_all(&[FILE_HEADER.as_slice(), &bytes].concat()).map(|records| compact(records, 0));
        }

        #[test]
        fn condensing_keeps_every_sum(
            charges in prop::collection::vec((0u64..3, 0u64..5, 1i64..3), 0..50),
        ) {
            let records: Vec<ChargeRecord> = charges.iter().map(|&(account, at, calls)| record(account, at, calls)).collect();
            let sum = |records: &[ChargeRecord], account| -> i64 {
                records.iter().filter(|record| record.account == account).map(|record| record.calls).sum()
            };
            let condensed = compact(records.clone(), 0);
            for account in 0..3 {
                prop_assert_eq!(sum(&condensed, account), sum(&records, account));
            }
            prop_assert!(condensed.len() <= 15);
        }
    }
}
