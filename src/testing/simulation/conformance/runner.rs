//! Runs a script on the kernel and on the model, and compares the outcomes.

use super::{
    backend::{Backend, Model, Pace},
    bench::Bench,
};
use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::atomic::{AtomicU32, Ordering},
};

/// Runs on the kernel, because timing may decide its outcome.
const KERNEL_RUNS: u32 = 4;

/// Runs on the kernel until it shows an outcome of the model.
const MOST_KERNEL_RUNS: u32 = 60;

/// Runs of the model without faults and with all time that it needs, for each number of machines.
const CALM_SEEDS: u64 = 4;

/// Further runs of the model, and how many more there are while an outcome is missing.
const SEEDS: u64 = 30;
const MOST_SEEDS: u64 = 600;

type Outcome = Vec<String>;

/// The outcomes of a script, and how often each occurred.
type Outcomes = BTreeMap<Outcome, u32>;

/// A script and the conditions of its runs.
#[derive(Clone, Copy)]
pub(super) struct Script {
    run: fn(&mut Bench),
    /// The numbers of machines of the model.
    machines: &'static [usize],
    kernel_runs: u32,
    has_foreign_ports: bool,
}

impl Script {
    pub(super) fn new(run: fn(&mut Bench)) -> Self {
        Script { run, machines: &[1, 2], kernel_runs: KERNEL_RUNS, has_foreign_ports: false }
    }

    /// Runs only with both sides of connections on one machine, as on the kernel.
    pub(super) fn on_one_machine(self) -> Self {
        Script { machines: &[1], ..self }
    }

    /// Sets the number of runs on the kernel. For scripts that take long.
    pub(super) fn kernel_runs(self, kernel_runs: u32) -> Self {
        Script { kernel_runs, ..self }
    }

    /// For scripts that listen at a given port of all addresses. Another program or test may use
    /// that port at one of its own addresses, so an outcome of less than a tenth of many runs is
    /// ignored.
    pub(super) fn with_foreign_ports(self) -> Self {
        Script { has_foreign_ports: true, ..self }
    }

    fn outcome(self, backend: Backend) -> Outcome {
        let mut bench = Bench::new(backend);
        (self.run)(&mut bench);
        bench.into_outcome()
    }

    fn of_model(self, seed: u64, pace: Pace, machines: usize, has_faults: bool) -> Outcome {
        self.outcome(Backend::Model(Model::new(seed, pace, machines, has_faults)))
    }

    /// Compares the outcomes.
    ///
    /// # Errors
    /// The outcomes of both, if one of the two sets lacks an outcome.
    fn compare(self) -> Result<(), String> {
        let mut kernel = Outcomes::new();
        for _ in 0..self.kernel_runs {
            count(&mut kernel, self.outcome(Backend::kernel()));
        }
        let mut calm = Outcomes::new();
        for (seed, machines) in (0..CALM_SEEDS).flat_map(|seed| self.machines.iter().map(move |m| (seed, *m)))
        {
            count(&mut calm, self.of_model(seed, Pace::Calm, machines, false));
        }
        // A busy machine may delay what usually happens at once.
        let mut runs = self.kernel_runs;
        while missing(&calm, &kernel) > 0 && runs < MOST_KERNEL_RUNS {
            count(&mut kernel, self.outcome(Backend::kernel()));
            runs += 1;
        }
        let mut model = calm.clone();
        let mut seed = 0;
        while seed < SEEDS || (missing(&kernel, &model) > 0 && seed < MOST_SEEDS) {
            let pace = [Pace::Random, Pace::Hasty, Pace::Random, Pace::Calm][seed as usize % 4];
            let machines = self.machines[seed as usize / 4 % self.machines.len()];
            count(&mut model, self.of_model(seed, pace, machines, seed % 3 > 0));
            seed += 1;
        }
        if self.has_foreign_ports && missing(&kernel, &model) > 0 {
            while runs < MOST_KERNEL_RUNS {
                count(&mut kernel, self.outcome(Backend::kernel()));
                runs += 1;
            }
            kernel.retain(|outcome, times| *times * 10 > runs || model.contains_key(outcome));
        }
        let (kernel_lacks, model_lacks) = (missing(&calm, &kernel), missing(&kernel, &model));
        let mut text = String::new();
        if model_lacks > 0 {
            let _ = writeln!(text, "the model lacks {model_lacks} outcomes of the kernel");
            let _ = write!(text, "{}{}", list("kernel", &kernel), list("model", &model));
        } else if kernel_lacks > 0 {
            let _ = writeln!(text, "the kernel lacks {kernel_lacks} outcomes of the model without faults");
            let _ = write!(text, "{}{}", list("kernel", &kernel), list("model without faults", &calm));
        }
        if text.is_empty() { Ok(()) } else { Err(text) }
    }

    pub(super) fn check(self) {
        if let Err(text) = self.compare() {
            panic!("{text}");
        }
    }
}

/// Checks that the kernel and the model have the same outcomes of a script.
pub(super) fn check(run: fn(&mut Bench)) {
    Script::new(run).check();
}

fn count(outcomes: &mut Outcomes, outcome: Outcome) {
    *outcomes.entry(outcome).or_default() += 1;
}

/// Returns the number of outcomes that are not among the others.
fn missing(outcomes: &Outcomes, others: &Outcomes) -> usize {
    outcomes.keys().filter(|outcome| !others.contains_key(*outcome)).count()
}

/// Returns the most frequent outcomes as text.
fn list(of: &str, outcomes: &Outcomes) -> String {
    let mut sorted: Vec<_> = outcomes.iter().collect();
    sorted.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
    let mut text = format!("{of}: {} outcomes\n", sorted.len());
    for (outcome, times) in sorted.into_iter().take(8) {
        let _ = writeln!(text, "  {times} times\n    {}", outcome.join("\n    "));
    }
    text
}

#[test]
fn an_outcome_that_only_the_kernel_has_is_found() {
    let differs = |bench: &mut Bench| {
        let is_kernel = matches!(bench.backend, Backend::Kernel(_));
        bench.note(if is_kernel { "kernel" } else { "model" });
    };
    let text = Script::new(differs).compare().unwrap_err();
    assert!(text.starts_with("the model lacks 1 outcomes"), "{text}");
}

#[test]
fn with_foreign_ports_only_a_rare_outcome_is_ignored() {
    let once = |bench: &mut Bench| {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let is_kernel = matches!(bench.backend, Backend::Kernel(_));
        bench.note(if is_kernel && RUNS.fetch_add(1, Ordering::Relaxed) == 0 { "in use" } else { "free" });
    };
    Script::new(once).with_foreign_ports().check();
    let always = |bench: &mut Bench| {
        let is_kernel = matches!(bench.backend, Backend::Kernel(_));
        bench.note(if is_kernel { "in use" } else { "free" });
    };
    let text = Script::new(always).with_foreign_ports().compare().unwrap_err();
    assert!(text.starts_with("the model lacks 1 outcomes"), "{text}");
}

#[test]
fn an_outcome_that_only_the_model_has_is_found() {
    let differs = |bench: &mut Bench| {
        // The kernel has one of the outcomes of the model.
        let is_on_two_machines = bench.backend.source() == bench.ip(super::backend::Side::Client);
        bench.note(if is_on_two_machines { "two machines" } else { "one machine" });
    };
    let text = Script::new(differs).compare().unwrap_err();
    assert!(text.starts_with("the kernel lacks 1 outcomes"), "{text}");
    Script::new(differs).on_one_machine().check();
}
