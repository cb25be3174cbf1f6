use super::*;
use proptest::prelude::*;

fn lives() -> Vec<Life> {
    let modes = [None, Some(CloseMode::Graceful), Some(CloseMode::Now), Some(CloseMode::Reset)];
    let open = modes.into_iter().flat_map(|mode| [Life::Opening(mode), Life::Active(mode)]);
    open.chain([true, false].map(|inactive_due| Life::Closed { inactive_due })).collect()
}

/// Stores each value in an empty word and in a full one. The value is read back, and no other bit
/// changes.
fn assert_packs<P: Part + PartialEq + std::fmt::Debug>(values: &[P]) {
    let mut packed = std::collections::BTreeSet::new();
    for value in values {
        assert!(packed.insert(value.pack()), "two values have the same bits: {value:?}");
        for before in [0, u64::MAX] {
            let mut status = Status(before);
            status.put(*value);
            assert_eq!(status.part::<P>(), *value);
            assert_eq!(status.0 & !P::MASK, before & !P::MASK, "{value:?} changes other parts");
        }
    }
}

#[test]
fn each_part_is_read_back_and_does_not_change_the_others() {
    assert_packs(&lives());
    assert_packs(&[InputHalf::Open, InputHalf::Ended]);
    assert_packs(&[OutputHalf::Open, OutputHalf::Ending, OutputHalf::Ended]);
    assert_packs(&[ReadGrant::None, ReadGrant::One, ReadGrant::All]);
    assert_packs(&[ReadDemand::AUTO, ReadDemand::AUTO.with(ReadDemand::OUTPUT_FULL)]);
    assert_packs(&[Readiness::MAYBE_READABLE, Readiness::HANG_UP.with(Readiness::CARRIED_OVER)]);
    assert_packs(&[Pending::FLUSH, Pending::LISTED.with(Pending::UNDECODED)]);
    assert_packs(&[Memory::WRITABLE, Memory::SERVED.with(Memory::DROPPED)]);
    assert_packs(&[0, 1, QueuedFailures::MOST].map(QueuedFailures));
}

/// Every bit pattern is a legal value, so no part can be misread.
#[test]
fn every_word_is_legal() {
    for bits in 0..1 << Life::BITS {
        assert!(lives().contains(&Life::unpack(bits)), "{bits:b}");
    }
    for bits in 0..1 << OutputHalf::BITS {
        let output = OutputHalf::unpack(bits);
        assert_eq!(OutputHalf::unpack(output.pack()), output);
        let grant = ReadGrant::unpack(bits);
        assert_eq!(ReadGrant::unpack(grant.pack()), grant);
    }
}

#[test]
fn a_later_request_to_close_never_weakens_an_earlier_one() {
    use CloseMode::{Graceful, Now, Reset};
    for (first, second, mode) in
        [(Graceful, Now, Now), (Now, Graceful, Now), (Reset, Now, Reset), (Graceful, Reset, Reset)]
    {
        let mut status = Status::new(true);
        assert!(status.request_close(first) && !status.is_open());
        assert_eq!(status.request_close(second), second > first);
        assert_eq!(status.close_mode(), Some(mode));
        assert_eq!(status.closes_at_once(), mode != Graceful);
        assert_eq!((status.closes_gracefully(), status.resets()), (mode == Graceful, mode == Reset));
    }
}

#[test]
fn inactive_is_due_once_and_only_after_active() {
    let mut status = Status::new(true);
    status.close();
    assert!(!status.take_inactive(), "active was never called");
    let mut status = Status::new(true);
    status.activate();
    assert!(status.is_active());
    status.close();
    assert!(status.is_closed() && !status.is_active());
    status.close();
    assert!(status.take_inactive() && !status.take_inactive());
    status.activate();
    assert!(status.is_closed() && !status.is_active(), "a closed channel stays closed");
}

/// A model of the status without packing.
#[derive(Debug, Clone, PartialEq)]
struct Model {
    life: Life,
    input: InputHalf,
    output: OutputHalf,
    auto: bool,
    wanted: bool,
    held: bool,
    full: bool,
    paused: bool,
    grant: ReadGrant,
    stops: bool,
}

impl Model {
    fn of(status: Status) -> Self {
        Model {
            life: status.life(),
            input: status.part(),
            output: status.output(),
            auto: status.has(ReadDemand::AUTO),
            wanted: status.has(ReadDemand::WANTED),
            held: status.has(ReadDemand::INPUT_HELD),
            full: status.has(ReadDemand::OUTPUT_FULL),
            paused: status.has(ReadDemand::STAGE_PAUSED),
            grant: status.part(),
            stops: status.has(Pending::FLUSH.with(Pending::REPLACED).with(Pending::UNDECODED)),
        }
    }

    fn is_closed(&self) -> bool {
        matches!(self.life, Life::Closed { .. })
    }

    fn is_open(&self) -> bool {
        matches!(self.life, Life::Opening(None) | Life::Active(None))
    }

    fn automatic(&self) -> bool {
        self.auto && !self.held && !self.full && !self.paused
    }

    fn end_reads(&mut self) {
        (self.wanted, self.grant) = (false, ReadGrant::None);
    }

    fn apply(&mut self, operation: u8) {
        match operation {
            0 => self.life = self.life.activated(),
            1 => self.life = self.life.closing(CloseMode::Graceful),
            2 => self.life = self.life.closing(CloseMode::Now),
            3 => self.life = self.life.closing(CloseMode::Reset),
            4 => {
                self.life = self.life.closed();
                self.end_reads();
            }
            5 => {
                self.life = Life::Closed { inactive_due: false };
                self.end_reads();
            }
            6 => self.input = InputHalf::Ended,
            7 if self.output == OutputHalf::Open => self.output = OutputHalf::Ending,
            8 => self.output = OutputHalf::Ended,
            9 => self.auto = true,
            10 => {
                self.auto = false;
                self.end_reads();
            }
            11 => self.wanted = !self.is_closed(),
            12 | 13 if self.wanted => {
                self.grant = if operation == 12 { ReadGrant::One } else { ReadGrant::All };
                self.wanted = false;
            }
            14 if !self.is_closed() => self.grant = ReadGrant::All,
            15 | 16 => {
                let asks_again = self.grant != ReadGrant::None && operation == 15 && !self.automatic();
                self.wanted |= asks_again;
                self.grant = ReadGrant::None;
            }
            17 if self.grant == ReadGrant::One => self.grant = ReadGrant::None,
            18 => self.held = true,
            19 => self.held = false,
            20 => self.full = true,
            21 => self.full = false,
            22 => self.stops = true,
            23 => self.stops = false,
            24 => self.paused = true,
            25 => self.paused = false,
            _ => {}
        }
    }
}

fn apply(status: &mut Status, operation: u8) {
    match operation {
        0 => status.activate(),
        1 => drop(status.request_close(CloseMode::Graceful)),
        2 => drop(status.request_close(CloseMode::Now)),
        3 => drop(status.request_close(CloseMode::Reset)),
        4 => status.close(),
        5 => drop(status.take_inactive()),
        6 => status.set_input(InputHalf::Ended),
        7 => drop(status.request_end_of_output()),
        8 => status.end_output(),
        9 => status.set_auto_read(true),
        10 => status.set_auto_read(false),
        11 => status.want_read(),
        12 => status.grant_read(true),
        13 => status.grant_read(false),
        14 => status.grant_rest(),
        15 => status.end_grant(true),
        16 => status.end_grant(false),
        17 => status.note_message(),
        18 => status.set(ReadDemand::INPUT_HELD),
        19 => status.unset(ReadDemand::INPUT_HELD),
        20 => status.set(ReadDemand::OUTPUT_FULL),
        21 => status.unset(ReadDemand::OUTPUT_FULL),
        22 => status.set(Pending::UNDECODED),
        23 => status.unset(Pending::UNDECODED),
        24 => status.set(ReadDemand::STAGE_PAUSED),
        25 => status.unset(ReadDemand::STAGE_PAUSED),
        26 => status.set(Readiness::HANG_UP.with(Readiness::WRITE_BLOCKED)),
        27 => status.unset(Readiness::WRITE_BLOCKED),
        28 => status.set(Readiness::CARRIED_OVER.with(Readiness::MAYBE_READABLE)),
        29 => status.unset(Readiness::CARRIED_OVER.with(Readiness::MAYBE_READABLE)),
        _ => status.set(Memory::STUCK.with(Memory::LIMITED)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The packed word equals the separate parts after any sequence of calls, and no closed channel
    /// reads.
    #[test]
    fn the_packed_word_behaves_like_its_parts(operations in prop::collection::vec(0u8..31, 1..60)) {
        let mut status = Status::new(true);
        let mut model = Model::of(status);
        for operation in operations {
            apply(&mut status, operation);
            model.apply(operation);
            prop_assert_eq!(&Model::of(status), &model, "after operation {}", operation);
            prop_assert_eq!(status.is_open(), model.is_open());
            prop_assert_eq!(status.takes_writes(), model.is_open() && model.output == OutputHalf::Open);
            prop_assert_eq!(status.may_read(), !model.paused && (model.wanted || model.automatic()));
            let delivers = model.is_open() && !model.stops && !model.paused
                && (model.grant != ReadGrant::None || model.automatic());
            prop_assert_eq!(status.may_deliver(), delivers);
            let first = Readiness::WRITE_BLOCKED.with(Readiness::CARRIED_OVER).with(Readiness::MAYBE_READABLE);
            let busy = status.has(first) || status.has(Pending::UNDECODED);
            prop_assert_eq!(
                status.reads_at_once(),
                model.is_open() && model.input == InputHalf::Open && model.automatic() && !busy
            );
            let left = status.has(Pending::UNDECODED) || status.has(Readiness::MAYBE_READABLE);
            prop_assert_eq!(status.is_done(), !left && !status.wants_driver());
            prop_assert!(!(model.is_closed() && (model.wanted || model.grant != ReadGrant::None)));
        }
    }
}
