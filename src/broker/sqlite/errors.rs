//! Why an operation on the file failed.

use crate::{broker::store::BrokerError, sqlite::FileError};

/// Why an operation of a batch failed.
#[derive(Debug)]
pub(super) enum StepError {
    /// This operation alone. It has written nothing.
    Operation(BrokerError),
    /// The transaction.
    File(FileError),
}

pub(super) type StepResult<T> = Result<T, StepError>;

impl From<FileError> for StepError {
    fn from(error: FileError) -> Self {
        StepError::File(error)
    }
}

impl From<BrokerError> for StepError {
    fn from(error: BrokerError) -> Self {
        StepError::Operation(error)
    }
}

impl From<FileError> for BrokerError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::InUse => BrokerError::InUse,
            FileError::OtherFormat => BrokerError::Unsuitable("the file is not one of a broker".into()),
            FileError::Version { found, known } => {
                BrokerError::Version { found: found.unsigned_abs(), known: known.unsigned_abs() }
            }
            FileError::Busy(cause) => BrokerError::Refused(cause),
            FileError::DiskFull => BrokerError::Full("the disk is full".into()),
            FileError::Failed(cause) => BrokerError::Failed(cause),
        }
    }
}
