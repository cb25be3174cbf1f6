//! The pages of `im_server` in a real browser.

mod chat;
mod dashboard;
mod page;
mod recovery;
mod server;
mod webdriver;
