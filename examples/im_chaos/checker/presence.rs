//! Compares the lists of members with the connections of the bots.

use super::Verdict;
use crate::journal::{Event, Journal};
use std::{collections::BTreeSet, time::Duration};

/// Time after which a user must be listed.
const LATE: Duration = Duration::from_secs(3);
/// Time between a join at a node and its arrival at the bot.
const RETURNS: Duration = Duration::from_secs(1);

/// Looks for absent users and for ghosts.
pub(super) fn check(journal: &Journal, bots: u32, rooms: u32, verdict: &mut Verdict) {
    if journal.censuses.is_empty() {
        return;
    }
    // Of each bot, when it has come and when it has left, in this order.
    let mut stays: Vec<Vec<(Duration, Option<Duration>)>> = vec![Vec::new(); bots as usize];
    for entry in &journal.entries {
        let Some(stays) = stays.get_mut(entry.bot as usize) else { continue };
        match (entry.event, stays.last_mut()) {
            (Event::Joined { .. }, Some((_, None))) => {}
            (Event::Joined { .. }, _) => stays.push((entry.at, None)),
            (Event::Left { .. }, Some((_, left @ None))) => *left = Some(entry.at),
            _ => {}
        }
    }
    // Of each room, when it was listed.
    let mut listed = vec![None; rooms as usize];
    let mut no_list_for = Duration::ZERO;
    let (mut absent, mut ghosts) = (BTreeSet::new(), Duration::ZERO);
    let mut absent_for = Duration::ZERO;
    // Of each bot, since when it is not listed.
    let mut absent_since = vec![None; bots as usize];
    for census in &journal.censuses {
        if let Some(listed) = listed.get_mut(census.room as usize) {
            let before: Duration = listed.replace(census.at).unwrap_or(census.at);
            no_list_for = no_list_for.max(census.at.saturating_sub(before));
        }
        for bot in (census.room..bots).step_by(rooms as usize) {
            let is_listed = census.users.binary_search(&bot).is_ok();
            let came = stays[bot as usize].iter().rfind(|(came, _)| *came <= census.at);
            let is_member = came.is_some_and(|(came, left)| {
                *came + LATE < census.asked && left.is_none_or(|left| left > census.at)
            });
            // A bot that is about to return is listed before it has read that it has joined.
            let next = stays[bot as usize].iter().find(|(came, _)| *came > census.at);
            let returns = next.is_some_and(|(came, _)| *came < census.at + RETURNS);
            if let (true, false, Some((_, Some(left)))) = (is_listed, returns, came) {
                ghosts = ghosts.max(census.asked.saturating_sub(*left));
            }
            let since = &mut absent_since[bot as usize];
            if is_listed || !is_member {
                *since = None;
                continue;
            }
            absent_for = absent_for.max(census.at - *since.get_or_insert(census.asked));
            if absent.insert(bot) {
                let (at, room) = (census.asked.as_secs_f64(), census.room);
                verdict.note(|| format!("bot {bot} is not listed in room {room} after {at:.1} s"));
            }
        }
    }
    verdict.absent = Some(absent.len() as u64);
    verdict.absent_for = Some(absent_for);
    verdict.ghosts = Some(ghosts);
    verdict.no_list_for = Some(no_list_for);
}
