//! The macro that generates types from the table of metrics.
//!
//! A row of the table has this form:
//!
//! ```text
//! /// Bytes read.
//! bytes_read: counter, tally(add), as "read" in bytes, help "Bytes read from sockets.";
//! ```
//!
//! | part | meaning |
//! |---|---|
//! | doc comment | the rustdoc of the field of `LoopMetrics` |
//! | `bytes_read` | the field of `LoopMetrics`, and of `Metrics`, which holds the loop's counters |
//! | `counter` | the kind: `counter`, `gauge`, `time` (counted in nanoseconds), `histogram` |
//! | `external` before the kind | another module counts, and `EventLoop::metrics` fills in the number |
//! | `tally(add)` | counted in `Tally` first, and added with this method of `Counter` once per turn |
//! | `as "read"` | the name for Prometheus, if it differs from the field |
//! | `in bytes` | the unit, a suffix of the name for Prometheus; times and histograms are `in seconds` |
//! | `by cause = "io"` | a label; consecutive rows with the same name form a family |
//! | `help` | the help text for Prometheus, if it differs from the doc comment |

/// Generates `Metrics` (the loop's counters), `Tally` (the counters of one turn) and `LoopMetrics`
/// (the public snapshot) from the table.
macro_rules! metrics {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $($kind:ident)+
            $(, tally($fold:ident))?
            $(, as $family:literal $(in $unit:ident)? $(by $label:ident = $value:literal)?)?
            $(, help $help:literal)?;
    )+) => {
        /// The counters of a loop. Times are in nanoseconds.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $(pub(crate) $name: cell_type!($($kind)+),)+
        }

        /// Counts of the current turn, or since [`Metrics::fold`]. Owned by the loop, so counting a
        /// message is a plain addition.
        #[derive(Debug, Default)]
        pub(crate) struct Tally {
            $($(
                #[doc = concat!("Folded with `Counter::", stringify!($fold), "`.")]
                pub(crate) $name: u64,
            )?)+
        }

        /// A snapshot of the metrics of a loop.
        ///
        /// Each number is read separately, so the numbers are not a consistent set. Numbers count
        /// from the start of the loop, except gauges, whose description contains "now". Events that
        /// happen once per message or callback are added at the end of the turn. For a guide to
        /// monitoring, see `docs/observability.md`.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct LoopMetrics {
            $($(#[doc = $doc])+ pub $name: field_type!($($kind)+),)+
        }

        impl Metrics {
            /// Adds the counts of a turn and clears them. Called only on the loop's thread.
            #[inline]
            pub(crate) fn fold(&self, tally: &mut Tally) {
                // Most turns count messages only.
                self.messages_read.add(std::mem::take(&mut tally.messages_read));
                self.messages_written.add(std::mem::take(&mut tally.messages_written));
                let mut rest = 0;
                $($(
                    // A repetition has to name a part of the row that not every row has.
                    let _ = Counter::$fold;
                    rest |= tally.$name;
                )?)+
                if rest != 0 {
                    self.fold_all(tally);
                }
            }

            #[inline(never)]
            fn fold_all(&self, tally: &mut Tally) {
                let tally = std::mem::take(tally);
                $($(self.$name.$fold(tally.$name);)?)+
            }

            /// Copies all numbers. External ones are zero.
            pub(crate) fn snapshot(&self) -> LoopMetrics {
                LoopMetrics { $($name: read_cell!(self.$name, $($kind)+),)+ }
            }
        }

        #[cfg(any(feature = "prometheus", test))]
        impl LoopMetrics {
            /// Returns a description of each field with its value, in the order of the table.
            pub(crate) fn rows(&self) -> Vec<Metric<'_>> {
                vec![$(
                    Metric::new(stringify!($name), concat!($($doc),+), row_value!(self.$name, $($kind)+))
                        $(.family($family)$(.unit(stringify!($unit)))?$(.label(stringify!($label), $value))?)?
                        $(.help($help))?,
                )+]
            }
        }
    };
}

/// Expands to the type of a field of `LoopMetrics`.
macro_rules! field_type {
    (time) => {
        Duration
    };
    (histogram) => {
        Histogram
    };
    ($($number:ident)+) => {
        u64
    };
}

/// Expands to the type of a field of `Metrics`.
macro_rules! cell_type {
    (external $kind:ident) => {
        External
    };
    (histogram) => {
        Recorder
    };
    ($number:ident) => {
        Counter
    };
}

/// Expands to the value of a field of `LoopMetrics`, read from a field of `Metrics`.
macro_rules! read_cell {
    ($cell:expr, external $kind:ident) => {{
        let External = $cell;
        0
    }};
    ($cell:expr, time) => {
        Duration::from_nanos($cell.read())
    };
    ($cell:expr, histogram) => {
        $cell.snapshot()
    };
    ($cell:expr, $number:ident) => {
        $cell.read()
    };
}

/// Expands to the `Value` of a field of `LoopMetrics`.
#[cfg(any(feature = "prometheus", test))]
macro_rules! row_value {
    ($field:expr, external $kind:ident) => {
        row_value!($field, $kind)
    };
    ($field:expr, counter) => {
        Value::Counter($field)
    };
    ($field:expr, gauge) => {
        Value::Gauge($field)
    };
    ($field:expr, time) => {
        Value::Time($field)
    };
    ($field:expr, histogram) => {
        Value::Histogram(&$field)
    };
}

#[cfg(any(feature = "prometheus", test))]
pub(super) use row_value;
pub(super) use {cell_type, field_type, metrics, read_cell};
