//! The macros that generate types from tables of metrics.
//!
//! A row of a table has this form:
//!
//! ```text
//! /// Bytes read.
//! bytes_read: counter, tally(add), as "read" in bytes, help "Bytes read from sockets.";
//! ```
//!
//! | part | meaning |
//! |---|---|
//! | doc comment | the rustdoc of the field of the snapshot, such as `LoopMetrics` |
//! | `bytes_read` | the field of the snapshot, and of `Metrics`, which holds the counters |
//! | `counter` | the kind: `counter`, `gauge`, `flag` (a gauge of 0 or 1), `time` (counted in nanoseconds), `histogram` |
//! | `external` before the kind | another module counts, and `EventLoop::metrics` fills in the number |
//! | `tally(add)` | counted in `Tally` first, and added with this method of `Counter` once per turn |
//! | `as "read"` | the name for Prometheus behind the prefix of the table, if it differs from the field |
//! | `in bytes` | the unit, a suffix of the name for Prometheus; times and histograms are `in seconds` |
//! | `by cause = "io"` | a label; consecutive rows with the same name form a family |
//! | `help` | the help text for Prometheus, if it differs from the doc comment |

/// Generates the counters, their snapshot, and its rows for exporters from a table. The types of
/// this module that the rows need are in scope at the call.
macro_rules! metric_table {
    (@type histogram) => { Histogram };
    (@type time) => { ::std::time::Duration };
    (@type flag) => { bool };
    (@type $($number:ident)+) => { u64 };

    (@cell external $kind:ident) => { External };
    (@cell histogram) => { Recorder };
    (@cell $number:ident) => { Counter };

    (@read $cell:expr, external $kind:ident) => {{
        let External = $cell;
        0
    }};
    (@read $cell:expr, histogram) => { $cell.snapshot() };
    (@read $cell:expr, time) => { ::std::time::Duration::from_nanos($cell.read()) };
    (@read $cell:expr, flag) => { $cell.read() > 0 };
    (@read $cell:expr, $number:ident) => { $cell.read() };

    (@value $field:expr, external $kind:ident) => { metric_table!(@value $field, $kind) };
    (@value $field:expr, counter) => { Value::Counter($field) };
    (@value $field:expr, gauge) => { Value::Gauge($field) };
    (@value $field:expr, flag) => { Value::Gauge(u64::from($field)) };
    (@value $field:expr, time) => { Value::Time($field) };
    (@value $field:expr, histogram) => { Value::Histogram(Box::new($field.clone())) };

    (@family $name:ident) => { stringify!($name) };
    (@family $name:ident $family:literal) => { $family };

    (
        $(#[$cells_attribute:meta])+
        $visibility:vis struct $Metrics:ident;
        $(#[$snapshot_attribute:meta])+
        pub struct $Snapshot:ident;
        prefix $prefix:literal;
        $(
            $(#[doc = $doc:literal])+
            $name:ident: $($kind:ident)+
                $(, tally($fold:ident))?
                $(, as $family:literal $(in $unit:ident)? $(by $label:ident = $value:literal)?)?
                $(, help $help:literal)?;
        )+
    ) => {
        $(#[$cells_attribute])+
        #[derive(Debug, Default)]
        $visibility struct $Metrics {
            $($visibility $name: metric_table!(@cell $($kind)+),)+
        }

        $(#[$snapshot_attribute])+
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub struct $Snapshot {
            $($(#[doc = $doc])+ pub $name: metric_table!(@type $($kind)+),)+
        }

        impl $Metrics {
            /// Copies all numbers. External ones are zero.
            $visibility fn snapshot(&self) -> $Snapshot {
                $Snapshot { $($name: metric_table!(@read self.$name, $($kind)+),)+ }
            }
        }

        #[cfg(any(feature = "prometheus", test))]
        impl $Snapshot {
            /// Returns a description of each field with its value, in the order of the table.
            $visibility fn rows(&self) -> Vec<Metric> {
                vec![$(
                    Metric::new(
                        stringify!($name),
                        concat!($prefix, metric_table!(@family $name $($family)?)),
                        concat!($($doc),+),
                        metric_table!(@value self.$name, $($kind)+),
                    )
                    $($(.unit(stringify!($unit)))?$(.label(stringify!($label), $value))?)?
                    $(.help($help))?,
                )+]
            }
        }
    };
}

/// Generates `Metrics` (the loop's counters), `LoopMetrics` (the public snapshot) and `Tally` (the
/// counters of one turn) from the table.
macro_rules! loop_metrics {
    ($($table:tt)+) => {
        metric_table! {
            /// The counters of a loop. Times are in nanoseconds.
            pub(crate) struct Metrics;

            /// A snapshot of the metrics of a loop.
            ///
            /// Each number is read separately, so the numbers are not a consistent set. Numbers
            /// count from the start of the loop, except gauges, whose description contains "now".
            /// Events that happen once per message or callback are added at the end of the turn.
            /// For a guide to monitoring, see `docs/observability.md`.
            #[derive(Default, PartialEq, Eq)]
            pub struct LoopMetrics;

            prefix "";
            $($table)+
        }

        tally! { $($table)+ }
    };
}

/// Generates `Tally` from the rows that are counted in it first.
macro_rules! tally {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $($kind:ident)+
            $(, tally($fold:ident))?
            $(, as $family:literal $(in $unit:ident)? $(by $label:ident = $value:literal)?)?
            $(, help $help:literal)?;
    )+) => {
        /// Counts of the current turn, or since [`Metrics::fold`]. Owned by the loop, so counting a
        /// message is a plain addition.
        #[derive(Debug, Default)]
        pub(crate) struct Tally {
            $($(
                #[doc = concat!("Folded with `Counter::", stringify!($fold), "`.")]
                pub(crate) $name: u64,
            )?)+
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
        }
    };
}

pub(crate) use metric_table;
pub(super) use {loop_metrics, tally};
