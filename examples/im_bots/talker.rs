//! The main thread's handle to a bot that can be made to talk.

use crate::{
    directs::Text,
    message_id::MessageId,
    plan::{Plan, Said, Seat},
    protocol::Request,
};
use netwheel::Channel;

pub(crate) struct Talker {
    pub(crate) bot: usize,
    pub(crate) seat: Seat,
    pub(crate) channel: Channel<Request>,
    /// Number of messages it has said in its room.
    pub(crate) said: u32,
}

impl Talker {
    /// Says the next message in its room. Returns `false` if the channel refused it.
    pub(crate) fn say(&mut self, plan: &Plan) -> bool {
        let said = Said { run: plan.run, seat: self.seat, number: self.said + 1, at: plan.start.elapsed() };
        let (room, text) = (plan.room(self.seat.room), said.padded(plan.size));
        let taken = self.channel.write(Request::Say { room, text, id: None }).is_ok();
        self.said += u32::from(taken);
        taken
    }

    /// Sends a direct message to another talker.
    pub(crate) fn direct(&self, plan: &Plan, to: &Talker) {
        let number = plan.directs.begin(to.bot, plan.acks(to.seat));
        let text = Text { run: plan.run, number }.to_string();
        let id = Some(MessageId::from(number));
        if self.channel.write(Request::Direct { to: plan.user(to.bot), text, id }).is_err() {
            plan.directs.withdraw();
        }
    }
}
