//! A process that has used up its descriptors (`EMFILE`).

use super::{backend::Backend, bench::Bench, own_process::is_own_process, runner::Script};
use crate::channel::driver::Ready;
use std::fs::File;

/// The number of descriptors that the process of such a test may have.
const LIMIT: u64 = 128;

/// Descriptors that leave none for others.
struct Exhausted(Vec<File>);

fn exhaust(bench: &Bench) -> Exhausted {
    let mut files = Vec::new();
    match &bench.backend {
        Backend::Kernel(_) => {
            while let Ok(file) = File::open("/dev/null") {
                files.push(file);
            }
        }
        Backend::Model(model) => model.shared.lock().exhaust_descriptors(0, u64::MAX),
    }
    Exhausted(files)
}

impl Exhausted {
    fn end(self, bench: &Bench) {
        drop(self.0);
        if let Backend::Model(model) = &bench.backend {
            model.shared.lock().exhaust_descriptors(0, 0);
        }
    }
}

/// Runs the script in a process with few descriptors.
fn with_few_descriptors(run: fn(&mut Bench)) {
    if is_own_process() {
        let (_, hard) = rlimit::getrlimit(rlimit::Resource::NOFILE).unwrap();
        rlimit::setrlimit(rlimit::Resource::NOFILE, LIMIT, hard).unwrap();
        Script::new(run).on_one_machine().check();
    }
}

#[test]
fn without_descriptors_accept_fails_and_the_connection_waits() {
    with_few_descriptors(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        let client = bench.connect("client", to, None).unwrap();
        bench.wait_for(client, Ready::WRITABLE);
        bench.wait_for_connection(listener);
        bench.forget_seen(listener);
        let exhausted = exhaust(bench);
        bench.try_accept(listener);
        bench.try_accept(listener);
        bench.settle();
        bench.note_seen(listener);
        exhausted.end(bench);
        bench.settle();
        // The poll does not report the end of the shortage.
        bench.note_seen(listener);
        bench.try_accept(listener);
        bench.try_accept(listener);
    });
}

#[test]
fn without_descriptors_accept_fails_also_if_nobody_connects() {
    with_few_descriptors(|bench| {
        let listener = bench.listen();
        let exhausted = exhaust(bench);
        bench.try_accept(listener);
        exhausted.end(bench);
        bench.try_accept(listener);
    });
}

#[test]
fn without_descriptors_no_socket_opens() {
    with_few_descriptors(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        let exhausted = exhaust(bench);
        bench.connect("client", to, None);
        bench.listen_at("second", to, &Default::default(), 1);
        bench.bind_at("datagrams", super::backend::Side::Server, to, &Default::default());
        exhausted.end(bench);
        bench.listen_at("second", to, &Default::default(), 1);
    });
}
