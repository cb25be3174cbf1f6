//! Writing the response of an exchange.

use super::{
    super::{
        exchange::{ExchangeChange, Input, Output, Then},
        framed_response::FramedResponse,
    },
    Ctx, ServerStage,
};
use crate::{
    channel::CloseCause,
    error::{Error, Result},
    http::{Part, Response, StatusCode, encode::unencodable, stale_response::StaleResponse},
};

impl ServerStage {
    /// Frames a part of the response. Returns no change if the part is dropped.
    ///
    /// # Errors
    /// [`Error::Encode`] if the part does not fit the parts before it, the request, or any request.
    #[inline]
    fn frame(
        &mut self,
        ctx: &mut Ctx<'_>,
        part: Part<Response>,
    ) -> Result<Option<(Option<FramedResponse>, ExchangeChange)>> {
        let drops_parts = self.drops_parts;
        let exchange = self.exchange();
        match part {
            Part::Head(response) => {
                if let Some(id) = response.request()
                    && !exchange.as_ref().is_some_and(|exchange| exchange.awaits(id))
                {
                    return Err(Error::other(StaleResponse::new(id, response)));
                }
                let Some(exchange) = exchange else {
                    return Err(unencodable("a response without a request"));
                };
                exchange.frame(Part::Head(response), || ctx.wall_time()).map(Some)
            }
            _ if drops_parts => Ok(None),
            part => match exchange {
                Some(exchange) => exchange.frame(part, || ctx.wall_time()).map(Some),
                None => Err(unencodable("a part of a response that has not begun")),
            },
        }
    }

    /// Sends `100 Continue` if the client waits for it and the handler wants the body.
    pub(super) fn maybe_continue(&mut self, ctx: &mut Ctx<'_>) -> Result {
        let Some(exchange) = self.exchange() else { return Ok(()) };
        if exchange.expects_continue && exchange.output == Output::Awaited && ctx.expects_input() {
            ctx.write(FramedResponse::Continue)?;
            exchange.expects_continue = false;
        }
        Ok(())
    }

    /// Sends `100 Continue` ahead of a response whose body is streamed: the handler may need the
    /// request's body for it, as an echo does. A client that has the status no longer waits for
    /// `100 Continue`, but need not send the body.
    #[cold]
    fn continue_before(&mut self, ctx: &mut Ctx<'_>, response: &Response) -> Result {
        if response.status() == StatusCode::CONTINUE {
            if let Some(exchange) = self.exchange() {
                exchange.expects_continue = false;
            }
            Ok(())
        } else if !response.status().is_informational() && response.announced_body().is_streamed() {
            self.maybe_continue(ctx)
        } else {
            Ok(())
        }
    }

    /// Writes the head of a response to a client that waits for `100 Continue`.
    #[cold]
    pub(super) fn write_to_waiting(&mut self, ctx: &mut Ctx<'_>, head: Part<Response>) -> Result {
        if let Part::Head(response) = &head {
            self.continue_before(ctx, response)?;
        }
        let written = self.write_part(ctx, head);
        if written.is_err()
            && let Some(exchange) = self.exchange()
        {
            // `100 Continue` is taken back together with the response.
            exchange.expects_continue = true;
        }
        written
    }

    /// Writes a part of the response. The change of the exchange follows the write, which is the
    /// last step that can fail.
    #[inline(always)]
    pub(super) fn write_part(&mut self, ctx: &mut Ctx<'_>, part: Part<Response>) -> Result {
        let (framed, change) = match self.frame(ctx, part) {
            Ok(Some(framed)) => framed,
            Ok(None) => return Ok(()),
            Err(error) => {
                let is_cut = self.exchange().is_some_and(|exchange| exchange.is_responding());
                if is_cut && StaleResponse::of(&error).is_none() {
                    // The client would take the next response for a part of this one.
                    self.end_because(ctx, CloseCause::Failed);
                }
                return Err(error);
            }
        };
        if let Some(framed) = framed {
            let is_event = matches!(framed, FramedResponse::Chunk(_) | FramedResponse::Data(_))
                && self.exchange().is_some_and(|exchange| exchange.is_event_stream);
            if is_event { ctx.write(framed)? } else { ctx.write_kept(framed)? }
        }
        if let Some(exchange) = self.exchange() {
            exchange.apply(&change);
        }
        self.drops_parts |= change.drops_parts;
        match change.then {
            Then::Continue => {
                if self.exchange().is_some_and(|exchange| exchange.is_event_stream) {
                    self.arm(ctx);
                }
            }
            Then::Finish => self.finish(ctx),
            Then::Upgrade => {
                if let Some(exchange) = self.exchange() {
                    exchange.input = Input::Complete;
                }
                // The bytes behind the request, and the end of the stream, are the next pipeline's.
                ctx.pause_reading();
            }
        }
        Ok(())
    }
}
