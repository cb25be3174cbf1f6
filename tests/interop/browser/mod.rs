//! The pages of `im_server` in a real browser.

mod chat;
mod webdriver;
