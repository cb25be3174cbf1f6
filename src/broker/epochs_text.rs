//! Epochs as a text, as stores keep them: `id:first id:first …`.

use super::store::{BrokerError, Epoch, Epochs};

#[cfg(feature = "broker-sqlite")]
pub(super) fn epochs_text(epochs: &Epochs) -> String {
    let parts: Vec<String> =
        epochs.as_slice().iter().map(|epoch| format!("{}:{}", epoch.id, epoch.first)).collect();
    parts.join(" ")
}

pub(super) fn parse_epochs(text: &str) -> Result<Epochs, BrokerError> {
    let parsed = text.split(' ').map(|epoch| {
        let (id, first) = epoch.split_once(':')?;
        Some(Epoch::new(id.parse().ok()?, first.parse().ok()?))
    });
    let epochs = parsed.collect::<Option<Vec<_>>>();
    Epochs::new(epochs.ok_or_else(|| BrokerError::failed(format_args!("wrong list of epochs: {text:?}")))?)
}

#[cfg(all(test, feature = "broker-sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_read_as_they_were_written() {
        let epochs = Epochs::new(vec![Epoch::new(7, 1), Epoch::new(9, 4)]).unwrap();
        assert_eq!(parse_epochs(&epochs_text(&epochs)), Ok(epochs));
        for text in ["", "7", "7:", "7:1 ", "a:1", "7:1  9:4", "7:0"] {
            assert!(parse_epochs(text).is_err(), "{text:?}");
        }
    }
}
