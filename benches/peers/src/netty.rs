//! Builds the servers with Netty from the jars in the folder `NETTY_JARS`.

use crate::workshop::quietly;
use std::{env, fs, io, path::Path, process::Command};

/// Environment variable with the folder of Netty's jars.
const JARS: &str = "NETTY_JARS";

/// A serial collector, so that there is one thread less beside the loop, and enough initial memory
/// that the heap does not grow during the measurement.
const JVM: [&str; 5] =
    ["-XX:+UseSerialGC", "-Xms256m", "-Xmx2g", "-XX:-UsePerfData", "-Dio.netty.leakDetection.level=disabled"];

/// Compiles the server of the folder `here`, and returns its command line. With a provider, the
/// server uses TLS.
///
/// # Errors
/// If the folder of jars is not set, or the server cannot be compiled.
pub(crate) fn command(here: &Path, shelf: &Path, tls: Option<&str>) -> io::Result<Vec<String>> {
    let folder = jars()?;
    eprintln!("peers: the version of Netty is {}", version()?);
    let jars = format!("{folder}/*");
    let source = here.join("servers/java/NettyServer.java");
    quietly(Command::new("javac").args(["-cp", &jars, "-d"]).arg(shelf).arg(source))?;
    let mut command = vec!["java".to_string()];
    command.extend(JVM.map(String::from));
    if let Some(provider) = tls {
        command.push(format!("-Dtls={provider}"));
        command.push(format!("-Dtls.folder={}", here.join("tls").display()));
    }
    command.extend(["-cp".to_string(), format!("{}:{jars}", shelf.display()), "NettyServer".to_string()]);
    Ok(command)
}

fn jars() -> io::Result<String> {
    env::var(JARS)
        .map_err(|_| io::Error::other(format!("{JARS} is not set; netty.sh prints a folder for it")))
}

/// Returns the version of the jars, which is in the name of each.
///
/// # Errors
/// If the folder of jars is not set, or cannot be read.
pub(crate) fn version() -> io::Result<String> {
    let folder = jars()?;
    for file in fs::read_dir(&folder)? {
        let name = file?.file_name();
        let version = name.to_str().and_then(|name| name.strip_prefix("netty-common-")?.strip_suffix(".jar"));
        if let Some(version) = version {
            return Ok(version.trim_end_matches(".Final").to_string());
        }
    }
    Err(io::Error::other(format!("there is no netty-common-*.jar in {folder}")))
}
