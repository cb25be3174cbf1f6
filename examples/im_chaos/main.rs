//! Injects faults into rooms on several nodes, and checks that no accepted message is lost, doubled
//! or reordered.
//!
//! ```text
//! cargo run --release --features full --example im_chaos
//! cargo run --release --features full --example im_chaos -- --faults kill-node --bots 3000
//! cargo run --release --features full --example im_chaos -- --nodes 1 --broker memory
//! cargo run --release --features full --example im_chaos -- --socketio benches/peers/socketio
//! ```
//!
//! For each fault, the program starts `redis-server` on a Unix socket in a temporary directory,
//! three nodes as processes of their own, and bots on loopback. The clients of each node, and its
//! connections to Redis, go through a proxy of this program, which can hold or cut them. Without
//! `--server`, the nodes are this program with `--as-node`: rooms on `Topic` and `RedisBroker`,
//! which speak the part of the chat protocol that rooms need.
//!
//! With `--socketio`, the nodes are Socket.IO on its Redis streams adapter, for comparison. A
//! program beside them has a client of Socket.IO for each bot, which connects through the same
//! proxies.
//! `npm ci` in that directory gets the packages; needs Node.js.
//!
//! Bots talk in rooms. A bot that loses its connection comes back to another node, with backoff and
//! jitter, and resumes with the position of the last message that it has received. It repeats a
//! message with the same id until the message is accepted. A journal records each position that a
//! bot is sent. In the end, every accepted message must have reached every member of its room, once
//! and in order, unless a notice covers it: a `gap`, or a `joined` with `recovered: false`.
//!
//! In the faults `publishers-…`, the messages come from publishers outside of the rooms. Their node
//! has no members, so it does not follow the rooms.
//!
//! | fault | expected answer |
//! |---|---|
//! | `resume-twice`, `resume-at-once` | `recovered: true`, and each missed message once |
//! | `resume-trimmed` | `recovered: false`, then the messages behind the position in the answer |
//! | `resume-ahead` | as for `resume-trimmed` |
//! | `resume-foreign` | as for `resume-trimmed`, for the position of a user in another room, and for the token and the position of a user in the same room |
//!
//! Progress goes to standard error, and a table in Markdown to standard output. `--out` gets the
//! table as `chaos.md` and `chaos.csv`, and the deliveries per second of each fault as `chaos.svg`.
//! The exit status is 0 if all guarantees were kept and all bots are back. A wrong answer to a
//! resume and a member without a notice of a loss break a guarantee too. Ctrl-C ends all processes,
//! and prints the table of the faults so far.
//!
//! | column | |
//! |---|---|
//! | lost | accepted messages in the store that a member has not received, without a notice; for each member |
//! | lost by the store, no notice | accepted messages that Redis lost before a member received them, without a notice; for each member. These members were away, and their positions stayed valid. |
//! | missed, with a notice | accepted messages that are covered by notices; for each member |
//! | users wrongly absent | users in a room who were not in a list of its members |
//! | absent for | the longest time for which such a user was not in the lists |
//! | ghosts gone after | the longest time for which a user was in a list after its connection had ended |
//! | no list for | the longest time without a list of the members of a room |
//! | longest gap | the longest time without a message to a member; it is not zero without a fault, because rooms are not always busy |
//! | all back after | the time from the end of the fault until all bots were in their rooms |
//! | seen and lost by the store, no notice | members that received a message before the store lost it, and continued without a notice |
//! | planned resumes | resumes of the faults `resume-…`; the journal states the expected answers |
//! | resumes with a wrong answer | planned resumes whose answer was missing, or differed from the expected answer |
//!
//! Reading order: `play/` (a fault, from the first connection to the verdict), `bots/` (the users),
//! `cluster/` (processes and proxies), `checker/` (the verdict), `node/` (the small node),
//! `report/` (output).

mod bots;
mod checker;
mod cluster;
mod journal;
#[path = "../im/message_id.rs"]
mod message_id;
mod node;
mod options;
#[path = "../support/output.rs"]
mod output;
mod play;
#[path = "../im/protocol.rs"]
mod protocol;
mod report;
#[path = "../im/request.rs"]
mod request;

use clap::Parser;
use netwheel::{Error, Result};
use options::Options;
use output::{Output, complain, say};
use report::progress::Progress;
use std::{
    fs,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The largest length of a line in bytes: a list of all members of a room.
const MAX_LINE: usize = 4 * 1024 * 1024;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--as-node") {
        let output = Output::start();
        let is_well = node::main();
        output.finish();
        return if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let options = Options::parse();
    let output = Output::start();
    let result = run(&options);
    if let Err(e) = &result {
        complain!("{e:#}");
    }
    output.finish();
    if result.is_ok_and(|is_well| is_well) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays all faults. Returns whether no guarantee was broken.
fn run(options: &Options) -> Result<bool> {
    let faults = options.faults()?;
    let stop = Arc::new(AtomicBool::new(false));
    let interrupted = stop.clone();
    ctrlc::set_handler(move || interrupted.store(true, Ordering::Release)).map_err(Error::other)?;
    let mut progress = Progress::new();
    let (mut outcomes, mut failed) = (Vec::new(), None);
    for fault in faults {
        match play::play(options, fault, &mut progress, &stop) {
            Ok(outcome) => {
                let v = &outcome.verdict;
                let (without_notice, faults) = (v.without_notice, v.lost + v.doubled + v.out_of_order);
                let name = fault.name();
                progress.end(&format!(
                    "{name}: {} accepted, {faults} faults, {without_notice} without a notice",
                    v.accepted
                ));
                v.examples.iter().for_each(|example| progress.end(&format!("  {example}")));
                outcomes.push(outcome);
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    let table = report::markdown(&outcomes);
    say!("{}", table.trim_end());
    let write = |name: &str, text: &str| {
        let path = options.out.join(name);
        fs::write(&path, text).map_err(|e| Error::other(format!("writing {}: {e}", path.display())))
    };
    fs::create_dir_all(&options.out).map_err(|e| Error::io("creating the directory of --out", e))?;
    write("chaos.md", &table)?;
    write("chaos.csv", &report::csv(&outcomes))?;
    write("chaos.svg", &report::picture::svg(&outcomes))?;
    match failed {
        Some(error) => Err(error),
        None => Ok(outcomes.iter().all(|outcome| !outcome.verdict.has_faults() && outcome.unsettled == 0)),
    }
}
