//! `SettingError`: a setting that was refused when it was built.

use std::{fmt, sync::Arc};

/// A setting outside its allowed range: its name, the refused value, the range.
///
/// Cheap to clone: the clones share the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError(Arc<Details>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Details {
    setting: &'static str,
    value: String,
    allowed: &'static str,
}

impl SettingError {
    pub(crate) fn new(setting: &'static str, value: String, allowed: &'static str) -> Self {
        SettingError(Arc::new(Details { setting, value, allowed }))
    }

    /// Returns the name of the setting, which is the name of its builder method.
    pub fn setting(&self) -> &'static str {
        self.0.setting
    }

    /// Returns the refused value as text.
    pub fn value(&self) -> &str {
        &self.0.value
    }

    /// Returns the allowed values in words.
    pub fn allowed(&self) -> &'static str {
        self.0.allowed
    }

    /// Returns the same refusal under the name that another builder has for the setting.
    pub(crate) fn renamed(&self, setting: &'static str) -> Self {
        SettingError(Arc::new(Details { setting, ..(*self.0).clone() }))
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { setting, value, allowed } = &*self.0;
        write!(f, "{setting} is {value}; it must be {allowed}")
    }
}

impl std::error::Error for SettingError {}
