//! Parses requests.
//!
//! The implementation is not derived: a derived tagged enum also accepts an array, buffers the
//! whole line before it looks at a field, and reports errors without their position. This one reads
//! fields in place and in any order.

use super::{
    message_id::MessageId,
    protocol::{Request, Resume},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::fmt;

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Type,
    User,
    Room,
    Text,
    To,
    In,
    Id,
    History,
    Resume,
    UniqueIds,
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Login,
    Join,
    Leave,
    Say,
    Who,
    Passive,
    Active,
    Direct,
    Ack,
    Lookup,
    Remind,
    Reminders,
    Forget,
    Ping,
    Pong,
}

/// The fields of all requests. A `null` in an optional field is like an absent field.
#[derive(Default)]
struct Fields {
    kind: Option<Kind>,
    user: Option<String>,
    room: Option<String>,
    text: Option<String>,
    to: Option<String>,
    after: Option<String>,
    id: Option<Box<RawValue>>,
    history: Option<Option<u64>>,
    resume: Option<Option<Resume>>,
    unique_ids: Option<Option<bool>>,
}

impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RequestVisitor)
    }
}

struct RequestVisitor;

impl<'de> Visitor<'de> for RequestVisitor {
    type Value = Request;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object with a type")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Request, A::Error> {
        let mut fields = Fields::default();
        while let Some(field) = map.next_key()? {
            match field {
                Field::Type => put(&mut fields.kind, "type", &mut map)?,
                Field::User => put(&mut fields.user, "user", &mut map)?,
                Field::Room => put(&mut fields.room, "room", &mut map)?,
                Field::Text => put(&mut fields.text, "text", &mut map)?,
                Field::To => put(&mut fields.to, "to", &mut map)?,
                Field::In => put(&mut fields.after, "in", &mut map)?,
                Field::Id => put(&mut fields.id, "id", &mut map)?,
                Field::History => put(&mut fields.history, "history", &mut map)?,
                Field::Resume => put(&mut fields.resume, "resume", &mut map)?,
                Field::UniqueIds => put(&mut fields.unique_ids, "unique_ids", &mut map)?,
                Field::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        fields.into_request()
    }
}

fn put<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    place: &mut Option<T>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    match place.replace(map.next_value()?) {
        None => Ok(()),
        Some(_) => Err(A::Error::duplicate_field(name)),
    }
}

impl Fields {
    fn into_request<E: Error>(self) -> Result<Request, E> {
        let Fields { kind, user, room, text, to, after, id, history, resume, unique_ids } = self;
        let needed = |field: Option<String>, name| field.ok_or_else(|| E::missing_field(name));
        Ok(match needed_kind(kind)? {
            Kind::Login => Request::Login {
                user: needed(user, "user")?,
                resume: resume.flatten(),
                unique_ids: unique_ids.flatten().unwrap_or(false),
            },
            Kind::Join => {
                let history = history.flatten().unwrap_or(0);
                Request::Join { room: needed(room, "room")?, history }
            }
            Kind::Leave => Request::Leave { room: needed(room, "room")? },
            Kind::Say => {
                let (room, text) = (needed(room, "room")?, needed(text, "text")?);
                Request::Say { room, text, id: message_id(id)? }
            }
            Kind::Who => Request::Who { room: needed(room, "room")? },
            Kind::Passive => Request::Passive { room: needed(room, "room")? },
            Kind::Active => Request::Active { room: needed(room, "room")? },
            Kind::Direct => {
                let (to, text) = (needed(to, "to")?, needed(text, "text")?);
                Request::Direct { to, text, id: message_id(id)? }
            }
            Kind::Ack => Request::Ack { id: number(id, "the id of an ack is a whole number")? },
            Kind::Lookup => Request::Lookup { user: needed(user, "user")?, id: message_id(id)? },
            Kind::Remind => {
                let (after, text) = (needed(after, "in")?, needed(text, "text")?);
                Request::Remind { after, text, id: message_id(id)? }
            }
            Kind::Reminders => Request::Reminders,
            Kind::Forget => Request::Forget { id: number(id, "the id of a reminder is a whole number")? },
            Kind::Ping => Request::Ping,
            Kind::Pong => Request::Pong,
        })
    }
}

fn needed_kind<E: Error>(kind: Option<Kind>) -> Result<Kind, E> {
    kind.ok_or_else(|| E::missing_field("type"))
}

/// Reads an `id` that the server has assigned.
fn number<E: Error>(id: Option<Box<RawValue>>, wrong: &'static str) -> Result<u64, E> {
    let id = id.ok_or_else(|| E::missing_field("id"))?;
    id.get().parse().map_err(|_| E::custom(wrong))
}

/// Treats an `id` of `null` as absent.
fn message_id<E: Error>(id: Option<Box<RawValue>>) -> Result<Option<MessageId>, E> {
    match id {
        Some(id) if id.get() != "null" => {
            MessageId::from_json(id).map(Some).ok_or_else(|| E::custom("an id is a string or a number"))
        }
        _ => Ok(None),
    }
}
