//! Child processes, optionally under strace: other programs, or this test binary with one test
//! selected.

use super::wait::PATIENCE;
use std::{
    ffi::OsStr,
    fs,
    io::{self, Read, Write},
    panic::Location,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// The environment variable that tells a child process which role it plays.
const ROLE: &str = "NETWHEEL_TEST_ROLE";

/// The prefix of the message that explains why a test was skipped.
const SKIPPED: &str = "SKIPPED: ";

/// Whether strace works here with these options. Where it does not, a test says so and passes, but not in CI.
pub(crate) fn strace_works(options: &[&str]) -> bool {
    let strace = Command::new("strace").args(["-f", "-o", "/dev/null"]).args(options).arg("true").output();
    let why = match strace {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(e) => e.to_string(),
    };
    skip(&format!("strace does not work here ({why})"));
    false
}

/// Says why a test proves nothing on this machine; in CI that is a failure.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    // Not `eprintln`, which the test harness would swallow.
    let _ = writeln!(io::stderr(), "{SKIPPED}{why}");
}

/// Whether this process was started by [`play`] to play `role`.
pub(crate) fn plays(role: &str) -> bool {
    std::env::var_os(ROLE).is_some_and(|r| r == role)
}

/// The command that runs this test binary as a child, with the test `role` of the calling file only.
#[track_caller]
pub(crate) fn play(role: &str) -> Vec<String> {
    only_test(&format!("{}::{role}", module_of(Location::caller().file())), role)
}

/// The module path within its binary of a file: `tests/channel/endings/table.rs` is `endings::table`.
fn module_of(file: &str) -> String {
    let path = file.replace('\\', "/");
    let (_, path) = path.split_once("tests/").expect("a file of a test binary");
    let (_binary, module) = path.split_once('/').expect("a module of a test binary");
    module.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::")
}

/// The command that runs one test of this binary, in a process that plays `role`.
fn only_test(test: &str, role: &str) -> Vec<String> {
    let binary = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let role = format!("{ROLE}={role}");
    ["env", &role, &binary, "--exact", test, "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec()
}

/// Runs the calling test in a child process in which no other test runs.
///
/// In the parent it waits until the child has passed and returns from the test. Use it for tests of
/// process-wide state: descriptors, limits, the allocator, signals.
#[macro_export]
macro_rules! own_process {
    () => {
        fn here() {}
        if !$crate::support::process::is_own_process(std::any::type_name_of_val(&here)) {
            return;
        }
    };
}

/// Returns `true` in the child process of the test that contains the function `here`. Otherwise runs
/// that child and returns `false`; panics if the child fails.
#[track_caller]
pub(crate) fn is_own_process(here: &str) -> bool {
    let path = here.trim_end_matches("::here");
    let (_binary, test) = path.split_once("::").expect("a path within the binary");
    if plays(test) {
        return true;
    }
    let command = only_test(test, test);
    let child = Command::new(&command[0]).args(&command[1..]).stdin(Stdio::null()).output().unwrap();
    let said = [child.stdout, child.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(child.status.success(), "{}; {}{}", child.status, said[0], said[1]);
    // The harness also succeeds if no test has this name.
    assert!(said[0].contains("1 passed"), "{test} did not run: {}", said[0]);
    for skipped in said[1].lines().filter(|line| line.starts_with(SKIPPED)) {
        let _ = writeln!(io::stderr(), "{skipped}");
    }
    false
}

/// A process of the test; ended with it.
pub(crate) struct Process {
    child: Child,
    /// The process that does the work, where that is not the child but the child's child.
    inner: Option<u32>,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
}

impl Process {
    /// Starts a program.
    pub(crate) fn start<S: AsRef<OsStr>>(command: &[S]) -> Self {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .env("RUST_LOG", "warn")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Process { child, inner: None, stdout: Output::new(stdout), stderr: Output::new(stderr) }
    }

    /// Starts a program under strace. What strace itself has to say is not kept.
    pub(crate) fn strace<S: AsRef<OsStr>>(options: &[&str], command: &[S]) -> Self {
        // The shell tells the number of the process that it becomes.
        let shell = ["sh", "-c", "echo $$; exec \"$0\" \"$@\""];
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null"].into_iter().chain(options.iter().copied());
        let command = strace.chain(shell).map(OsStr::new).chain(command.iter().map(AsRef::as_ref));
        let mut process = Self::start(&command.collect::<Vec<_>>());
        let inner = process.stdout.wait_for("").trim().parse().expect("the shell tells its number");
        process.inner = Some(inner);
        process
    }

    /// Attaches strace to a thread of another process. Returns `None` where that is not permitted;
    /// in CI it panics instead.
    pub(crate) fn attach(options: &[&str], thread: &str) -> Option<Self> {
        let command = [&["strace"], options, &["-p", thread]].concat();
        let mut strace = Self::start(&command);
        let attached = strace.stderr.wait_until("strace to attach", |text| {
            let refused = text.contains("not permitted");
            (refused || text.contains("attached\n")).then_some((!refused, text.len()))
        });
        if !attached {
            skip("strace may not attach to a process here");
        }
        attached.then_some(strace)
    }

    /// The number of the process that does the work.
    pub(crate) fn id(&self) -> u32 {
        self.inner.unwrap_or(self.child.id())
    }

    /// Writes to its standard input.
    pub(crate) fn say(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Takes its standard input; dropped, the process reads the end of it.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Sends a signal to the process that does the work.
    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([format!("-{name}"), self.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits until it has ended, and with success; all that it has still to say.
    #[track_caller]
    pub(crate) fn succeed(mut self) -> (String, String) {
        drop(self.take_stdin());
        let rest = (self.stdout.drain(), self.stderr.drain());
        self.inner = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}; {}", rest.1);
        rest
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(inner) = self.inner {
            let _ = Command::new("kill").args(["-KILL", &inner.to_string()]).stderr(Stdio::null()).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process prints, as it comes.
pub(crate) struct Output {
    chunks: Receiver<Vec<u8>>,
    /// What has come and was not asked for yet.
    text: String,
}

impl Output {
    fn new(mut from: impl Read + Send + 'static) -> Self {
        let (sender, chunks) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Output { chunks, text: String::new() }
    }

    /// Takes everything up to the end of the first line with `mark` in it; answers what stands behind the mark.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, mark: &str) -> String {
        self.wait_until(mark, |text| {
            let at = text.find(mark)? + mark.len();
            let end = at + text[at..].find('\n')?;
            Some((text[at..end].to_owned(), end + 1))
        })
    }

    /// Waits until `find` finds something; takes the text up to where it says.
    #[track_caller]
    pub(crate) fn wait_until<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<(T, usize)>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some((found, upto)) = find(&self.text) {
                self.text.drain(..upto);
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.chunks.recv_timeout(left) {
                Ok(chunk) => self.text.push_str(&String::from_utf8_lossy(&chunk)),
                Err(e) => panic!("{e:?} while waiting for {what:?}; it said: {}", self.text),
            }
        }
    }

    /// What it says within `time`; all of that time is waited for.
    pub(crate) fn within(&mut self, time: Duration) -> String {
        let end = Instant::now() + time;
        let mut said = std::mem::take(&mut self.text);
        loop {
            match self.chunks.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(chunk) => said.push_str(&String::from_utf8_lossy(&chunk)),
                Err(RecvTimeoutError::Timeout) => return said,
                Err(RecvTimeoutError::Disconnected) => panic!("it has ended; it said: {said}"),
            }
        }
    }

    /// Everything up to its end.
    #[track_caller]
    fn drain(&mut self) -> String {
        let mut said = std::mem::take(&mut self.text);
        loop {
            match self.chunks.recv_timeout(PATIENCE) {
                Ok(chunk) => said.push_str(&String::from_utf8_lossy(&chunk)),
                Err(RecvTimeoutError::Disconnected) => return said,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end; it said: {said}"),
            }
        }
    }
}

/// The thread of a process that has this name.
pub(crate) fn thread_of(process: u32, name: &str) -> String {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads
        .map(|thread| thread.unwrap())
        .find(|thread| fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .unwrap_or_else(|| panic!("no thread is called {name}"))
        .file_name()
        .into_string()
        .unwrap()
}
