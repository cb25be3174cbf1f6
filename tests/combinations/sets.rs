//! Larger sets of features: random ones, and by hand all sets of one size.

use crate::{
    conversation,
    feature::{Feature, Features},
};
use std::env;

/// The number of random sets of one run.
const SETS: usize = 8;

/// Names the seed of the run, to repeat it.
const SEED: &str = "NETWHEEL_COMBINATIONS_SEED";

/// Random sets of three to eight features. `NETWHEEL_COMBINATIONS` sets the number of sets.
#[test]
fn random_sets() {
    let sets = env::var("NETWHEEL_COMBINATIONS").map_or(SETS, |n| n.parse().expect("a number"));
    let seed = env::var(SEED).map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..sets {
        let n = random.usize(3..=8);
        let features = Features::of(&random.choose_multiple(Feature::ALL, n));
        println!("{SEED}={seed} {features:?}");
        conversation::holds(features);
    }
}

/// All sets of `NETWHEEL_COMBINATIONS_SIZE` features, such as the 560 of three. The default size is
/// one.
#[test]
fn all_sets_of_one_size() {
    let size: u32 = env::var("NETWHEEL_COMBINATIONS_SIZE").map_or(1, |size| size.parse().expect("a number"));
    for features in Features::all().filter(|features| features.len() == size) {
        println!("{features:?}");
        conversation::holds(features);
    }
}
