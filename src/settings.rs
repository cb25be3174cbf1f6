//! Generates settings structs from tables that state the name, type, default, range and
//! documentation of each setting once.
//!
//! ```text
//! /// Sets the number of bytes that may wait to be sent.
//! max_outbound(bytes: usize) = 16 * MIB, "16 MiB", range 1.. => "1 byte or more",
//!     reached "what `overflow` says";
//! ```
//!
//! | part | meaning |
//! |---|---|
//! | doc comment | the rustdoc of the method that sets it |
//! | `max_outbound(bytes: usize)` | the method and the field, the name of the argument, the type |
//! | `= 16 * MIB, "16 MiB"` | the default, and its text in the documentation |
//! | `range 1.. => "1 byte or more"` | the allowed values, and their text in errors and in the documentation |
//! | `always "1 ≤ low"` | the range in words, if the type itself enforces it |
//! | `reached` | the effect of reaching the limit, for the documentation |

use crate::error::{Error, Result};
use std::{fmt::Debug, ops::RangeBounds};

/// Generates a struct of settings with its `Default`, its builder methods, `check`, and the table
/// in its rustdoc.
macro_rules! settings {
    (
        $(#[$struct_doc:meta])*
        pub struct $Settings:ident {$(
            $(#[$doc:meta])+
            $name:ident($argument:ident: $type:ty) = $default:expr, $text:literal
                $(, always $always:literal)?
                $(, range $range:expr => $allowed:literal)?
                $(, reached $reached:literal)?;
        )+}
    ) => {
        $(#[$struct_doc])*
        ///
        /// | setting | default | range | when it is reached |
        /// |---|---|---|---|
        $(#[doc = concat!("| `", stringify!($name), "` | ", $text, " | ", $($always,)? $($allowed,)? " | ", $($reached,)? " |")])+
        #[derive(Debug, Clone)]
        pub struct $Settings {
            $(pub(crate) $name: $type,)+
        }

        impl Default for $Settings {
            fn default() -> Self {
                $Settings { $($name: $default,)+ }
            }
        }

        impl $Settings {
            /// Returns the default settings (see the table above).
            pub fn new() -> Self {
                Self::default()
            }

            $(
                $(#[$doc])+
                pub fn $name(mut self, $argument: $type) -> Self {
                    self.$name = $argument;
                    self
                }
            )+

            /// Returns an error for the first setting that is out of range.
            fn check(&self) -> Result {
                $($($crate::settings::check_range(stringify!($name), self.$name, $range, $allowed)?;)?)+
                Ok(())
            }

            /// Returns the rows of the table.
            #[cfg(test)]
            pub(crate) fn rows() -> Vec<$crate::settings::tests::Setting> {
                let defaults = Self::default();
                vec![$(
                    $crate::settings::tests::Setting::new(stringify!($name), $text, &defaults.$name)
                        $(.range($range, $allowed))?,
                )+]
            }
        }
    };
}

pub(crate) use settings;

/// Returns an error if the value is not in `range`. `allowed` is the range in words.
pub(crate) fn check_range<T: PartialOrd + Debug>(
    setting: &'static str,
    value: T,
    range: impl RangeBounds<T>,
    allowed: &'static str,
) -> Result {
    if range.contains(&value) { Ok(()) } else { Err(Error::setting(setting, format!("{value:?}"), allowed)) }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
pub(crate) mod tests;
