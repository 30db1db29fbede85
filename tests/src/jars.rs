//! Owns finding the jars of real Kafkas in the shared cache and compiling the Java sources of the
//! tests once. Fetching is `bin/fetch-kafka.sh`.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The Kafka that serves as source, oracle and client unless a case says otherwise.
pub const KAFKA_CURRENT: &str = "4.3.1";

/// Settings that make short JVM runs start fast.
pub const JVM_FAST: [&str; 4] = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
];

fn cache() -> PathBuf {
    env::var_os("TARN_KAFKA_CACHE")
        .map(PathBuf::from)
        .unwrap_or_else(|| {
            let home = env::var_os("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .unwrap_or_else(|| {
                    PathBuf::from(
                        env::var_os("HOME").expect("HOME or TARN_KAFKA_CACHE must be set"),
                    )
                    .join(".cache")
                });
            home.join("tarn/kafka")
        })
}

/// The class path of one version, with the compiled test classes in front.
///
/// # Panics
/// When the version is not in the cache: the text says what to run.
#[must_use]
pub fn class_path(version: &str) -> String {
    format!("{}:{}/*", classes().display(), libs(version).display())
}

/// Whether the jars of one version are in the cache.
#[must_use]
pub fn are_there(version: &str) -> bool {
    cache().join(version).join("complete").exists()
}

/// The folder with the jars of one version.
///
/// # Panics
/// When the version is not in the cache.
#[must_use]
pub fn libs(version: &str) -> PathBuf {
    let home = cache().join(version);
    assert!(
        are_there(version),
        "the jars of kafka {version} are not in {}: run bin/fetch-kafka.sh {version}",
        cache().display()
    );
    home.join("libs")
}

/// The compiled Java sources of `tests/java`; compiled at the first call, kept in the cache under
/// the hash of the sources.
fn classes() -> &'static Path {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("java");
        let files: Vec<PathBuf> = ["Driver.java", "KafkaNode.java"]
            .iter()
            .map(|f| sources.join(f))
            .collect();
        let mut hash = DefaultHasher::new();
        for file in &files {
            fs::read(file)
                .unwrap_or_else(|e| panic!("{}: {e}", file.display()))
                .hash(&mut hash);
        }
        let home = cache().join(format!("classes-{:016x}", hash.finish()));
        if !home.exists() {
            let work = tempfile::Builder::new()
                .prefix(".classes-")
                .tempdir_in(cache())
                .expect("folder for classes");
            let output = Command::new("javac")
                .args([
                    "-nowarn",
                    "-Xlint:none",
                    "-cp",
                    &format!("{}/*", libs(KAFKA_CURRENT).display()),
                    "-d",
                ])
                .arg(work.path())
                .args(&files)
                .output()
                .expect("javac runs (a JDK 17 or newer is needed)");
            assert!(
                output.status.success(),
                "javac failed on tests/java: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            // Losing the race against another test process is fine: the content is the same.
            fs::rename(work.path(), &home).ok();
        }
        home
    })
}

/// A `java` command with the class path of `version` and a heap of at most `heap_mb` megabytes,
/// logging to its standard error.
#[must_use]
pub fn java(version: &str, heap_mb: u32, logging: &Logging) -> Command {
    let mut command = Command::new("java");
    command
        .args(JVM_FAST)
        .arg(format!("-Xmx{heap_mb}m"))
        .args(logging.options())
        .args(["-cp", &class_path(version)]);
    command
}

/// What Kafka's own start scripts give to every JVM.
const JVM_OF_KAFKAS_SCRIPTS: [&str; 6] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
];

/// As [`java`], for what runs long and is measured: the compilers and the collector that Kafka's
/// own start scripts choose.
#[must_use]
pub fn java_full(version: &str, heap_mb: u32, logging: &Logging) -> Command {
    let mut command = Command::new("java");
    command
        .args(JVM_OF_KAFKAS_SCRIPTS)
        .arg(format!("-Xmx{heap_mb}m"))
        .args(logging.options())
        .args(["-cp", &class_path(version)]);
    command
}

/// Configuration files for the two logging libraries that Kafka used over the years.
#[derive(Debug)]
pub struct Logging {
    log4j1: PathBuf,
    log4j2: PathBuf,
}

impl Logging {
    /// Writes the files into `dir`; `level` is a log4j level such as `INFO`.
    ///
    /// # Panics
    /// When they cannot be written.
    #[must_use]
    pub fn write(dir: &Path, level: &str) -> Self {
        let logging = Self {
            log4j1: dir.join("log4j.properties"),
            log4j2: dir.join("log4j2.properties"),
        };
        let v1 = format!(
            "log4j.rootLogger={level}, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\nlog4j.appender.out.target=System.err\n\
             log4j.appender.out.layout=org.apache.log4j.PatternLayout\nlog4j.appender.out.layout.ConversionPattern=%d %p %c{{1}} %m%n\n"
        );
        let v2 = format!(
            "rootLogger.level={level}\nrootLogger.appenderRef.out.ref=OUT\nappender.out.type=Console\nappender.out.name=OUT\n\
             appender.out.target=SYSTEM_ERR\nappender.out.layout.type=PatternLayout\nappender.out.layout.pattern=%d %p %c{{1}} %m%n\n"
        );
        fs::write(&logging.log4j1, v1).expect("log4j.properties");
        fs::write(&logging.log4j2, v2).expect("log4j2.properties");
        logging
    }

    fn options(&self) -> [String; 2] {
        [
            format!("-Dlog4j.configuration=file:{}", self.log4j1.display()),
            format!("-Dlog4j2.configurationFile={}", self.log4j2.display()),
        ]
    }
}
