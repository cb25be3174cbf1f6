//! The end of an engine.

use super::{Engine, Now, State, message::EngineStep};
use crate::error::Error;

impl Engine {
    pub(super) fn stop(&mut self, error: Option<Error>, now: Now, steps: &mut Vec<EngineStep>) {
        self.fire_ended(now, steps);
        let closing = std::mem::replace(&mut self.state, State::Stopped(error.clone()));
        let error = error.unwrap_or(Error::ShutDown);
        if let State::Closing(completers) = closing {
            steps.push(EngineStep::FailClose(completers, error.clone()));
        }
        let changing = std::mem::take(&mut self.changing).into_values().map(|(completer, _)| completer);
        let waiting = std::mem::take(&mut self.waiting).into_values().flatten().map(|asked| asked.completer);
        for completer in changing.chain(waiting) {
            steps.push(EngineStep::Complete(completer, Err(error.clone())));
        }
        self.window.clear();
        self.runs.clear();
        self.ready.clear();
        self.alone = None;
    }

    /// Tells the store to close. What has not ended fires again after the next start.
    pub(super) fn close(&mut self, now: Now, steps: &mut Vec<EngineStep>) {
        let completers = match std::mem::replace(&mut self.state, State::Active) {
            State::Closing(completers) => completers,
            State::Active => Vec::new(),
            stopped @ State::Stopped(_) => {
                self.state = stopped;
                return;
            }
        };
        self.stop(None, now, steps);
        steps.push(EngineStep::Close(completers));
    }
}
