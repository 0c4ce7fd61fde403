//! Spread of a figure over several rounds.

/// The median of some values, with the least and the largest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Returns `None` without any value.
    pub(crate) fn from_values(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        // With an even number of values, the two in the middle count alike: the upper one alone
        // would flatter rates.
        let half = values.len() / 2;
        let median = f64::midpoint(values[(values.len() - 1) / 2], values[half]);
        Some(Self { median, least, most })
    }

    /// Formats as `12 (9-15)`, with `digits` after the point.
    pub(crate) fn with_digits(self, digits: usize) -> String {
        let Self { median, least, most } = self;
        format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
    }
}
