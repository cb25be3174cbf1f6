//! The counting tools: their command lines, and their output at the end of the server.
//!
//! A count is always a total of the whole process, from its first instruction to its last. Valgrind
//! counts the work of the program, not of the kernel, and runs one thread at a time. strace stops
//! the program at each system call. Both slow it down, but change nothing else.

use std::{collections::BTreeMap, path::Path, process::Command};

/// Totals by name.
pub(crate) type Totals = BTreeMap<String, f64>;

pub(crate) const INSTRUCTIONS: &str = "instructions";
pub(crate) const ALLOCATIONS: &str = "allocations";
pub(crate) const ALLOCATED: &str = "allocated bytes";

/// Prefix of the name of a system call.
pub(crate) const CALL: &str = "call ";

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Tool {
    /// Instructions in user space.
    Callgrind,
    /// Allocated blocks, and their bytes. A block that is moved to grow counts again.
    Dhat,
    /// System calls, by name.
    Strace,
}

/// Returns the tools that work on this machine. Prints a message to stderr for each of the others.
pub(crate) fn usable() -> Vec<Tool> {
    let works = |tool: &Tool| match tool.try_out() {
        Ok(()) => true,
        Err(why) => {
            eprintln!("peers: {} are not counted: {}: {why}", tool.what(), tool.name());
            false
        }
    };
    [Tool::Callgrind, Tool::Dhat, Tool::Strace].into_iter().filter(works).collect()
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tool::Callgrind => "valgrind --tool=callgrind",
            Tool::Dhat => "valgrind --tool=dhat",
            Tool::Strace => "strace -f -c",
        }
    }

    pub(crate) fn what(self) -> &'static str {
        match self {
            Tool::Callgrind => "instructions",
            Tool::Dhat => "allocations",
            Tool::Strace => "system calls",
        }
    }

    /// Returns the tool's program and arguments, which precede those of the server. The tool writes
    /// to `file`.
    pub(crate) fn command(self, file: &Path) -> Vec<String> {
        let file = file.display();
        let (log, nowhere) = (format!("--log-file={file}"), "--dhat-out-file=/dev/null".to_string());
        let rest = match self {
            // Other messages of valgrind are not needed.
            Tool::Callgrind => vec!["-q".to_string(), format!("--callgrind-out-file={file}")],
            Tool::Dhat => vec![log, nowhere],
            // When strace writes to a file, it ends on a signal only with `-I2`.
            Tool::Strace => ["-I2", "-qq", "-o", &file.to_string()].map(String::from).to_vec(),
        };
        self.name().split(' ').map(String::from).chain(rest).collect()
    }

    fn try_out(self) -> Result<(), String> {
        let command = self.command(Path::new("/dev/null"));
        let output = Command::new(&command[0]).args(&command[1..]).arg("true").output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let words = String::from_utf8_lossy(&output.stderr);
                Err(words.lines().next().unwrap_or("it fails").to_string())
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// Parses the tool's output. Returns `None` if it has another format.
    pub(crate) fn read(self, text: &str) -> Option<Totals> {
        match self {
            Tool::Callgrind => instructions(text),
            Tool::Dhat => allocations(text),
            Tool::Strace => calls(text),
        }
    }
}

/// Parses the last total in callgrind's file: `totals: 4711`.
fn instructions(text: &str) -> Option<Totals> {
    let total = text.lines().rev().find_map(|line| line.strip_prefix("totals: "))?;
    Some(Totals::from([(INSTRUCTIONS.to_string(), total.trim().parse().ok()?)]))
}

/// Parses `==12== Total:     1,024 bytes in 2 blocks`.
fn allocations(text: &str) -> Option<Totals> {
    let total = text.lines().find_map(|line| line.split_once("Total:").map(|(_, rest)| rest))?;
    let words: Vec<&str> = total.split_whitespace().collect();
    let &[bytes, "bytes", "in", blocks, "blocks"] = words.as_slice() else { return None };
    let number = |digits: &str| digits.replace(',', "").parse().ok();
    Some(Totals::from([(ALLOCATED.to_string(), number(bytes)?), (ALLOCATIONS.to_string(), number(blocks)?)]))
}

/// Parses the table of strace(1): share, seconds, microseconds, calls, errors if there were any,
/// name.
fn calls(text: &str) -> Option<Totals> {
    let rows =
        text.lines().filter(|line| line.trim_start().starts_with(|first: char| first.is_ascii_digit()));
    let mut totals = Totals::new();
    for row in rows {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let name = columns.last()?;
        if *name != "total" {
            totals.insert(format!("{CALL}{name}"), columns.get(3)?.parse().ok()?);
        }
    }
    (!totals.is_empty()).then_some(totals)
}

#[cfg(test)]
mod tests {
    use super::{ALLOCATED, ALLOCATIONS, INSTRUCTIONS, Tool};

    #[test]
    fn output_of_callgrind_is_parsed() {
        let text = "version: 1\nevents: Ir\nsummary: 12\n\nfn=(1) main\n0 7\n\ntotals: 4711\n";
        assert_eq!(Tool::Callgrind.read(text).unwrap()[INSTRUCTIONS], 4711.0);
        assert_eq!(Tool::Callgrind.read("version: 1\n"), None);
    }

    #[test]
    fn output_of_dhat_is_parsed() {
        let text = "==7== DHAT, a dynamic heap analysis tool\n==7== \n==7== Total:     1,234,567 bytes in 89 blocks\n\
                    ==7== At t-gmax: 3 bytes in 1 blocks\n";
        let totals = Tool::Dhat.read(text).unwrap();
        assert_eq!((totals[ALLOCATED], totals[ALLOCATIONS]), (1_234_567.0, 89.0));
        assert_eq!(Tool::Dhat.read("==7== Total: nothing\n"), None);
    }

    #[test]
    fn output_of_strace_is_parsed_with_and_without_errors() {
        let text = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 99.00    0.001000           1      1000        17 read
  1.00    0.000010           2         5           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.001010           1      1005        17 total
";
        let totals = Tool::Strace.read(text).unwrap();
        assert_eq!(
            totals.into_iter().collect::<Vec<_>>(),
            [("call epoll_wait".to_string(), 5.0), ("call read".to_string(), 1000.0)]
        );
        assert_eq!(Tool::Strace.read(""), None);
    }
}
