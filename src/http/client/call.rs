//! Calls: requests with a completion for the whole response.

use super::HttpClient;
use crate::{
    Completer, Completion, Context, Error, Handler, Pipeline, Result,
    http::{Aggregate, Body, Message, Part, Request, Response, encode::unencodable},
    pipeline::{Stage, StageContext},
    sync::completion,
};
use std::collections::VecDeque;

/// A request with a completion for its whole response, for the pipeline of
/// [`HttpClient::calls`].
///
/// The request must have no body or a whole one. If the connection ends first, the completion
/// fails with [`Error::Closed`] or the error of the channel. Dropping the completion does not take
/// the request back; its response is dropped.
pub struct Call {
    request: Request,
    reply: Completer<Message<Response>>,
}

impl Call {
    /// Returns a call to write to a channel, and the completion for its response.
    pub fn new(request: Request) -> (Call, Completion<Message<Response>>) {
        let (reply, response) = completion(None);
        (Call { request, reply }, response)
    }
}

/// Returns the pipeline of [`HttpClient::calls`].
pub(super) fn pipeline(client: &HttpClient, max_body: usize) -> Pipeline<Call> {
    client.pipeline().stage(Aggregate::max_response(max_body)).stage(Calls::default()).handler(Ends)
}

/// Pairs responses with calls.
#[derive(Default)]
struct Calls {
    replies: VecDeque<Completer<Message<Response>>>,
    /// The first error of the channel, for the calls that it fails.
    error: Option<Error>,
}

impl Stage for Calls {
    type ReadIn = Message<Response>;
    type ReadOut = ();
    type WriteIn = Call;
    type WriteOut = Part<Request>;

    fn read(&mut self, _: &mut StageContext<'_, Self>, response: Message<Response>) -> Result<Option<()>> {
        if let Some(reply) = self.replies.pop_front() {
            reply.complete(Ok(response));
        }
        Ok(None)
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, call: Call) -> Result {
        let Call { request, reply } = call;
        let result = match request.announced_body() {
            Body::Empty | Body::Full(_) => ctx.write(request.into()),
            Body::Sized(_) | Body::Streamed => Err(unencodable("a call whose body is streamed")),
        };
        match result {
            Ok(()) => {
                self.replies.push_back(reply);
                Ok(())
            }
            Err(error) => {
                reply.complete(Err(error.clone()));
                Err(error)
            }
        }
    }

    fn error(&mut self, _: &mut StageContext<'_, Self>, error: Error) -> Result {
        self.error.get_or_insert_with(|| error.clone());
        Err(error)
    }

    fn inactive(&mut self, _: &mut StageContext<'_, Self>) -> Result {
        let error = self.error.take().unwrap_or(Error::Closed);
        for reply in self.replies.drain(..) {
            reply.complete(Err(error.clone()));
        }
        Ok(())
    }
}

/// The end of the pipeline, which receives nothing.
struct Ends;

impl Handler for Ends {
    type Read = ();
    type Write = Call;

    fn read(&mut self, _: &mut Context<'_, Self>, (): ()) -> Result {
        Ok(())
    }
}
