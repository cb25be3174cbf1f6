//! The compiler's messages for wrong pipelines: each names the two messages that do not match, or
//! the missing part.
//!
//! Compiles small programs against the library that this test was linked with. If the compiler in
//! the path cannot read that library, the test says so and passes: another toolchain may have built
//! it, and words its messages differently.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const PRELUDE: &str = r#"
#![allow(dead_code, unused_imports)]
use netwheel::{codec::LengthField, prelude::*, pipeline::{Links, PipelineBuilder}, stage::Heartbeat};
use std::time::Duration;

struct Texts;
impl Handler for Texts {
    type Read = String;
    type Write = String;
    fn read(&mut self, ctx: &mut Context<'_, Self>, text: String) -> Result { ctx.write(text) }
}

fn group() -> EventLoopGroup { EventLoopGroup::builder().threads(1).build().unwrap() }
fn frames() -> PipelineBuilder<impl Links> { Pipeline::codec(LengthField::u32()) }
fn main() { let _ = (frames as fn() -> _, case as fn() -> _); }
"#;

/// A program, and the expected text of the compiler's messages for it.
struct Case {
    name: &'static str,
    code: &'static str,
    messages: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "a handler that reads another message",
        code: "fn case() { let _ = Pipeline::codec(LengthField::u32()).handler(Texts); }",
        messages: &[
            "type mismatch resolving `<Texts as Handler>::Read == Bytes`",
            "type mismatch resolving `<Texts as Handler>::Write == Bytes`",
            "expected this to be `netwheel::bytes::Bytes`",
        ],
    },
    Case {
        name: "a stage that writes another message",
        code: r#"fn case() {
            let ping = || String::from("ping");
            let _ = Pipeline::codec(LengthField::u32()).stage(Heartbeat::new(Duration::from_secs(1), ping));
        }"#,
        messages: &["expected", "`Bytes`", "`String`"],
    },
    Case {
        name: "something that is no handler",
        code: "fn case() { let _ = Pipeline::codec(LengthField::u32()).handler(7); }",
        messages: &["`{integer}` is not a handler", "pass a closure to `.on_read(|ctx, message| ..)`"],
    },
    Case {
        name: "something that is no stage",
        code: "fn case() { let _ = Pipeline::codec(LengthField::u32()).stage(Texts); }",
        messages: &["`Texts` is not a stage", "implement `netwheel::Stage` for it"],
    },
    Case {
        name: "something that is no codec",
        code: "fn case() { let _ = Pipeline::codec(Texts).handler(Texts); }",
        messages: &["`Texts` is not a codec", "use a codec of `netwheel::codec`"],
    },
    Case {
        name: "a factory without a handler",
        code: "fn case() {
            let _ = ServerBootstrap::new(&group()).pipeline(|_| Pipeline::codec(LengthField::u32()));
        }",
        messages: &[
            "expected a finished pipeline, found `PipelineBuilder<Framed<LengthField>>`",
            "`.handler(..)` or `.on_read(..)` finishes a `PipelineBuilder`",
        ],
    },
    Case {
        name: "links that are not those of a pipeline",
        code: "fn case() -> PipelineBuilder<impl Links> { wrong() }\nfn wrong() -> PipelineBuilder<Texts> { loop {} }",
        messages: &["`Texts` is not a part of a pipeline", "links begin with `Pipeline::codec(..)`"],
    },
];

/// The newest build of the library beside this test.
fn library() -> Option<PathBuf> {
    let test = env::current_exe().ok()?;
    let entries = fs::read_dir(test.parent()?).ok()?.flatten();
    let builds = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libnetwheel-") && name.ends_with(".rlib")
    });
    let newest = builds.max_by_key(|entry| entry.metadata().and_then(|metadata| metadata.modified()).ok())?;
    Some(newest.path())
}

/// Compiles a program. Returns the compiler's messages, or `None` without a compiler.
fn compile(library: &Path, code: &str) -> Option<(bool, String)> {
    let mut netwheel = std::ffi::OsString::from("netwheel=");
    netwheel.push(library);
    let mut dependencies = std::ffi::OsString::from("dependency=");
    dependencies.push(library.parent()?);
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2024", "--emit", "metadata", "-o"])
        .arg(env::temp_dir().join(format!("netwheel-pipeline-errors-{}", std::process::id())))
        .arg("--extern")
        .arg(netwheel)
        .arg("-L")
        .arg(dependencies)
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    rustc.stdin.take()?.write_all(code.as_bytes()).ok()?;
    let output = rustc.wait_with_output().ok()?;
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn the_compiler_names_the_messages_that_do_not_match() {
    let right = format!("{PRELUDE}fn case() {{ let _ = Pipeline::codec(LengthField::u32()); }}");
    let Some(library) = library() else {
        return eprintln!("skipped: the library is not beside the test");
    };
    match compile(&library, &right) {
        Some((true, _)) => {}
        other => return eprintln!("skipped: this compiler cannot use {}: {other:?}", library.display()),
    }
    for Case { name, code, messages } in CASES {
        let (compiles, said) = compile(&library, &format!("{PRELUDE}{code}")).expect("it ran before");
        assert!(!compiles, "{name}: compiles");
        for message in *messages {
            assert!(said.contains(message), "{name}: no {message:?} in\n{said}");
        }
    }
}
