//! `Resumes`: compares the answers to planned resumes with the expected answers.

use super::Verdict;
use crate::journal::{Event, Journal, Recovered};
use std::collections::BTreeMap;

/// Open resumes by bot, with the expected value of `recovered`.
#[derive(Default)]
pub(super) struct Resumes(BTreeMap<u32, bool>);

impl Resumes {
    /// Checks the answer of each resume.
    pub(super) fn check(journal: &Journal, verdict: &mut Verdict) {
        let mut resumes = Resumes::default();
        for entry in &journal.entries {
            let bot = entry.bot;
            match entry.event {
                Event::Resumed { must_recover, .. } => {
                    *verdict.resumes.get_or_insert_default() += 1;
                    if resumes.0.insert(bot, must_recover).is_some() {
                        verdict.wrong_resumes += 1;
                        verdict.note(|| format!("a resume of bot {bot} has no answer"));
                    }
                }
                Event::Joined { recovered, position } => resumes.answer(bot, recovered, || {
                    verdict.wrong_resumes += 1;
                    verdict.note(|| format!("bot {bot} has resumed at {position}: {recovered:?}"));
                }),
                _ => {}
            }
        }
        verdict.wrong_resumes += resumes.0.len() as u64;
        resumes.0.keys().for_each(|bot| verdict.note(|| format!("a resume of bot {bot} has no answer")));
    }

    /// Calls `wrong` if an open resume has an unexpected answer.
    fn answer(&mut self, bot: u32, recovered: Recovered, wrong: impl FnOnce()) {
        let is_right = match self.0.remove(&bot) {
            Some(true) => recovered == Recovered::Yes,
            Some(false) => recovered == Recovered::No,
            None => true,
        };
        if !is_right {
            wrong();
        }
    }
}
