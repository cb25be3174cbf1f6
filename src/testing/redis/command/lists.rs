//! Commands for lists.

use super::{
    super::{
        keyspace::List,
        refusal::{NOT_POSITIVE, Refusal, Reply},
    },
    call::{CommandCall, integer, range},
    reply::{array, count},
};
use crate::codec::RespValue;
use bytes::Bytes;

pub(super) fn lpush(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    push(call, args, List::push_front)
}

pub(super) fn rpush(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    push(call, args, List::push_back)
}

fn push(call: &mut CommandCall<'_>, args: &[Bytes], push: fn(&mut List, Bytes)) -> Reply {
    let list = call.create::<List>(&args[1])?;
    args[2..].iter().for_each(|item| push(list, item.clone()));
    let length = list.len();
    call.changed(&args[1]);
    count(length)
}

pub(super) fn lpop(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    pop(call, args, "lpop", List::pop_front)
}

pub(super) fn rpop(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    pop(call, args, "rpop", List::pop_back)
}

fn pop(call: &mut CommandCall<'_>, args: &[Bytes], name: &str, pop: fn(&mut List) -> Option<Bytes>) -> Reply {
    let wanted = match args {
        [_, _] => None,
        [_, _, wanted] => {
            let wanted = integer(wanted).map_err(|_| NOT_POSITIVE)?;
            Some(usize::try_from(wanted).map_err(|_| NOT_POSITIVE)?)
        }
        _ => return Err(Refusal::arity(name)),
    };
    let Some(list) = call.write::<List>(&args[1])? else {
        return Ok(if wanted.is_some() { RespValue::NullArray } else { RespValue::Null });
    };
    let popped: Vec<_> = (0..wanted.unwrap_or(1)).map_while(|_| pop(list)).map(RespValue::Bulk).collect();
    if !popped.is_empty() {
        call.changed(&args[1]);
    }
    match wanted {
        Some(_) => Ok(RespValue::Array(popped)),
        None => Ok(popped.into_iter().next().unwrap_or(RespValue::Null)),
    }
}

pub(super) fn lrange(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let (start, end) = (integer(&args[2])?, integer(&args[3])?);
    let list = call.read::<List>(&args[1])?;
    array(list.into_iter().flat_map(|list| list.range(range(start, end, list.len()))))
}

pub(super) fn llen(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    count(call.read::<List>(&args[1])?.map_or(0, List::len))
}
