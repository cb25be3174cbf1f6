//! Lists of the members of a room.

use super::{
    Room,
    member_map::{MemberMap, names},
};
use crate::{
    hub, name,
    pace::Cost,
    protocol::Reply,
    session::{Answer, Session, bad_name, busy},
};
use netwheel::{Completion, broker::store::Snapshot, prelude::*, time::Delay};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Time after which a list of members is sent, although those at other servers are not known yet.
const LIMIT: Duration = Duration::from_secs(2);

impl Session {
    /// Lists the members of a room at all servers. If the store has to be asked, the client gets
    /// the list later, and requests are not read in the meantime.
    pub(crate) fn who(&mut self, ctx: &mut Context<'_, Self>, room: &str) -> Answer {
        self.logged_in()?;
        let room = name::room(room).map_err(bad_name)?.into_owned();
        match self.hub.rooms.find(&room) {
            Some(known) => match known.shared.ready() {
                Some(ready) => self.list_when(ctx, known, ready),
                None => return Ok(Some(self.list(room, known.users()))),
            },
            None => {
                self.pace.charge(Cost::stored());
                let members = MemberMap::read(&self.hub, &room)?;
                if members.is_done() {
                    let users = members.wait().map(names).map_err(|error| busy(&error))?;
                    return Ok(Some(self.list(room, users)));
                }
                self.list_from(ctx, room, members);
            }
        }
        Ok(None)
    }

    /// Lists the members when those at other servers are known, or after some time.
    fn list_when(&mut self, ctx: &mut Context<'_, Self>, room: Arc<Room>, ready: Completion) {
        self.listing = Some(ctx.pause_reading());
        let is_listed = Arc::new(AtomicBool::new(false));
        let list = move |me: &mut Self, ctx: &mut Context<'_, Self>| {
            if is_listed.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
            me.listing = None;
            let reply = me.list(room.name().to_string(), room.users());
            me.replies.write(ctx, reply)
        };
        let me = ctx.handler_ref();
        let list_now = list.clone();
        ready.on_complete(move |_| hub::run(&me, list_now));
        // Members that are not known then are announced later.
        ctx.schedule(Delay::coarse(LIMIT), list);
    }

    /// Lists the members of a room without members at this server.
    fn list_from(&mut self, ctx: &mut Context<'_, Self>, room: String, members: Completion<Snapshot>) {
        self.listing = Some(ctx.pause_reading());
        let me = ctx.handler_ref();
        members.on_complete(move |members| {
            hub::run(&me, move |me, ctx| {
                me.listing = None;
                let reply = match members {
                    Ok(members) => me.list(room, names(members)),
                    Err(error) => busy(&error).reply(),
                };
                me.replies.write(ctx, reply)
            });
        });
    }

    fn list(&mut self, room: String, users: Vec<String>) -> Reply {
        self.pace.charge(Cost::deliveries(users.len() / 8));
        Reply::Members { room, users }
    }
}
