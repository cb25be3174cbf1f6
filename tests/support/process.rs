//! Child processes, optionally under strace. A child is another program, or this test binary with a
//! single test selected.

use super::wait::{PATIENCE, wait_until};
use std::{
    ffi::OsStr,
    fs,
    io::{self, Read, Write},
    panic::Location,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// The environment variable that selects the role of a child process.
const ROLE: &str = "NETWHEEL_TEST_ROLE";

/// The prefix of the message that explains why a test was skipped.
const SKIPPED: &str = "SKIPPED: ";

/// Returns whether strace works here with these options. If it does not, the test is skipped,
/// except in CI, where this panics.
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

/// Reports why a test is skipped on this machine. Panics in CI.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    // `eprintln` would be captured by the test harness.
    let _ = writeln!(io::stderr(), "{SKIPPED}{why}");
}

/// Returns whether all programs are installed. If not, the test is skipped, except in CI.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    for program in programs {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        if !found.is_ok_and(|found| found.status.success()) {
            skip(&format!("{program} is not installed"));
            return false;
        }
    }
    true
}

/// Returns the path of an example, which `cargo test` has built.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).expect("a test is in target/PROFILE/deps");
    let binary = profile.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(binary.exists(), "build {} with `cargo build --examples`", binary.display());
    binary
}

/// Returns whether [`play`] started this process to play `role`.
pub(crate) fn plays(role: &str) -> bool {
    std::env::var_os(ROLE).is_some_and(|r| r == role)
}

/// Returns the command that runs this test binary as a child with only the test `role` of the
/// calling file.
#[track_caller]
pub(crate) fn play(role: &str) -> Vec<String> {
    only_test(&format!("{}::{role}", module_of(Location::caller().file())), role)
}

/// Returns the module path of a file within its binary: `tests/channel/endings/table.rs` is
/// `endings::table`, and `tests/system/rss.rs` is `system::rss` in `tests/programs.rs`.
fn module_of(file: &str) -> String {
    let path = file.replace('\\', "/");
    let (_, path) = path.split_once("tests/").expect("a file of a test binary");
    let own_folder = concat!(env!("CARGO_CRATE_NAME"), "/");
    path.trim_start_matches(own_folder).trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::")
}

/// Returns the command that runs one test of this binary in a process that plays `role`.
fn only_test(test: &str, role: &str) -> Vec<String> {
    let binary = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let role = format!("{ROLE}={role}");
    ["env", &role, &binary, "--exact", test, "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec()
}

/// Runs the calling test in a child process in which no other test runs.
///
/// The parent waits until the child has passed and returns from the test. Use it for tests of
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

/// Returns `true` in the child process of the test that contains the function `here`. Otherwise
/// runs that child and returns `false`. Panics if the child fails.
#[track_caller]
pub(crate) fn is_own_process(here: &str) -> bool {
    let path = here.trim_end_matches("::here");
    let (_binary, test) = path.split_once("::").expect("a path within the binary");
    if plays(test) {
        wait_for_harness();
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

/// Waits until the thread that has started the test waits for its end. Before that it still
/// allocates, which tests that count allocations would see.
fn wait_for_harness() {
    if thread::current().name() == Some("main") {
        return;
    }
    let harness = format!("/proc/self/task/{}/stat", std::process::id());
    let is_asleep = || {
        // The state follows the name of the program, which is in parentheses.
        let stat = fs::read_to_string(&harness);
        stat.map_or(true, |stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" S")))
    };
    wait_until("the test harness waits for the test", is_asleep);
}

/// A child process, which is killed on drop.
pub(crate) struct Process {
    child: Child,
    /// The id of the grandchild that does the work, if the child is a wrapper such as strace.
    inner: Option<u32>,
    /// Whether the child leads a process group, which is killed with it.
    leads_group: bool,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
}

impl Process {
    /// Starts a program.
    pub(crate) fn start<S: AsRef<OsStr>>(command: &[S]) -> Self {
        Self::spawn(Command::new(&command[0]).args(&command[1..]))
    }

    /// Starts a program in a process group of its own. The programs that it starts are killed with
    /// it.
    #[cfg(unix)]
    pub(crate) fn start_group(command: &mut Command) -> Self {
        let mut process = Self::spawn(std::os::unix::process::CommandExt::process_group(command, 0));
        process.leads_group = true;
        process
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .env("RUST_LOG", "warn")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (stdout, stderr) = (Output::new(stdout), Output::new(stderr));
        Process { child, inner: None, leads_group: false, stdout, stderr }
    }

    /// Starts a program under strace. Discards the output of strace.
    pub(crate) fn strace<S: AsRef<OsStr>>(options: &[&str], command: &[S]) -> Self {
        // The shell prints its process id and then becomes the program.
        let shell = ["sh", "-c", "echo $$; exec \"$0\" \"$@\""];
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null"].into_iter().chain(options.iter().copied());
        let command = strace.chain(shell).map(OsStr::new).chain(command.iter().map(AsRef::as_ref));
        let mut process = Self::start(&command.collect::<Vec<_>>());
        let inner = process.stdout.wait_for("").trim().parse().expect("the shell prints its process id");
        process.inner = Some(inner);
        process
    }

    /// Attaches strace to a thread of another process. Returns `None` if that is not permitted; in
    /// CI it panics instead.
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

    /// Returns the id of the process that does the work.
    pub(crate) fn id(&self) -> u32 {
        self.inner.unwrap_or(self.child.id())
    }

    /// Writes to the standard input of the process.
    pub(crate) fn say(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Takes the standard input. Dropping it closes the pipe, so that the process reads end of
    /// file.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Sends a signal to the process that does the work.
    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([format!("-{name}"), self.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for a successful exit. Returns the remaining standard output and standard error.
    #[track_caller]
    pub(crate) fn succeed(self) -> (String, String) {
        self.succeed_within(PATIENCE)
    }

    /// Like [`succeed`](Self::succeed), for a program that may print nothing for a long time.
    #[track_caller]
    pub(crate) fn succeed_within(mut self, limit: Duration) -> (String, String) {
        drop(self.take_stdin());
        let rest = (self.stdout.drain(limit), self.stderr.drain(limit));
        self.inner = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}; {}{}", rest.0, rest.1);
        rest
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.leads_group {
            let group = format!("-{}", self.child.id());
            // Fails if all its processes have ended.
            let _ = Command::new("kill").args(["-s", "KILL", "--", &group]).stderr(Stdio::null()).status();
        }
        if let Some(inner) = self.inner {
            let _ = Command::new("kill").args(["-KILL", &inner.to_string()]).stderr(Stdio::null()).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Captured output of a process.
pub(crate) struct Output {
    chunks: Receiver<Vec<u8>>,
    /// Received text that has not been returned yet.
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

    /// Takes everything up to the end of the first line that contains `mark`. Returns the text
    /// after the mark.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, mark: &str) -> String {
        self.wait_until(mark, |text| {
            let at = text.find(mark)? + mark.len();
            let end = at + text[at..].find('\n')?;
            Some((text[at..end].to_owned(), end + 1))
        })
    }

    /// Waits until `find` returns a value and an offset. Removes the text up to that offset.
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
                Err(e) => panic!("{e:?} while waiting for {what:?}; output so far: {}", self.text),
            }
        }
    }

    /// Returns the output of the given period. Always waits for the whole period.
    pub(crate) fn within(&mut self, time: Duration) -> String {
        let end = Instant::now() + time;
        let mut said = std::mem::take(&mut self.text);
        loop {
            match self.chunks.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(chunk) => said.push_str(&String::from_utf8_lossy(&chunk)),
                Err(RecvTimeoutError::Timeout) => return said,
                Err(RecvTimeoutError::Disconnected) => panic!("the process has ended; output: {said}"),
            }
        }
    }

    /// Returns all output until the process closes it. Panics if nothing arrives within `limit`.
    #[track_caller]
    fn drain(&mut self, limit: Duration) -> String {
        let mut said = std::mem::take(&mut self.text);
        loop {
            match self.chunks.recv_timeout(limit) {
                Ok(chunk) => said.push_str(&String::from_utf8_lossy(&chunk)),
                Err(RecvTimeoutError::Disconnected) => return said,
                Err(RecvTimeoutError::Timeout) => panic!("the process does not end; output: {said}"),
            }
        }
    }
}

/// Returns the id of the thread with the given name.
pub(crate) fn thread_of(process: u32, name: &str) -> String {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads
        .map(|thread| thread.unwrap())
        .find(|thread| fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .unwrap_or_else(|| panic!("no thread is named {name}"))
        .file_name()
        .into_string()
        .unwrap()
}
