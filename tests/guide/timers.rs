//! Tasks of a channel, from the guide's chapter about timers.

use bytes::Bytes;
use netwheel::{codec::Line, prelude::*, testing::EmbeddedChannel, time::ScheduledTask};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Warns a player every second, and disconnects it after five seconds.
struct Countdown {
    warnings: ScheduledTask,
    end: ScheduledTask,
}

impl Countdown {
    fn begin(player: &Channel<Bytes>) -> Result<Self> {
        let mut left = 5;
        let warnings = player.schedule_periodic(SECOND, move |ctx| {
            left -= 1;
            ctx.write(format!("{left} s left").into())
        })?;
        let end = player.schedule(5 * SECOND, |ctx| ctx.close_with("too late".into()))?;
        Ok(Countdown { warnings, end })
    }

    /// Returns whether the player was in time.
    fn stop(&self) -> bool {
        self.warnings.cancel();
        self.end.cancel()
    }
}

#[test]
fn a_player_who_answers_in_time_stays_connected() -> Result {
    let mut player = EmbeddedChannel::new(Pipeline::codec(Line::new()).on_read(|_, _| Ok(())));
    let countdown = Countdown::begin(&player.channel())?;
    player.advance(2 * SECOND);
    assert_eq!(player.read_outbound(), "4 s left\n3 s left\n");
    assert!(countdown.stop());
    player.advance(60 * SECOND);
    assert!(player.is_open() && player.read_outbound().is_empty());

    let countdown = Countdown::begin(&player.channel())?;
    player.advance(5 * SECOND);
    assert!(player.is_closed() && !countdown.stop());
    Ok(())
}
