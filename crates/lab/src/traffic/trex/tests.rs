//! Against a server of a few methods, as TRex documents them.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::zmtp::{COMMAND, GREETING, MORE, greeting, read_frame, ready, write_frame};
use super::*;
use crate::traffic::Flows;

/// What the server was asked, and what its ports have counted.
#[derive(Debug, Default)]
struct Server {
    asked: Vec<(String, Value)>,
    rate: f64,
    ends: Option<Instant>,
    sent: u64,
    /// Of each ten packets so many arrive.
    of_ten: u64,
    owner: String,
}

impl Server {
    fn answer(&mut self, method: &str, params: &Value) -> Result<Value, &'static str> {
        self.asked.push((method.to_owned(), params.clone()));
        if method == "api_sync_v2" {
            let fits = params["name"] == "STL" && params["major"] == 5;
            return if fits {
                Ok(json!({ "api_h": "key" }))
            } else {
                Err("Version mismatch")
            };
        }
        if params["api_h"] != "key" {
            return Err("API handler provided mismatch");
        }
        let handler = format!("of {}", params["port_id"]);
        match method {
            "acquire" if !self.owner.is_empty() => Err("port is already taken"),
            "acquire" => Ok(handler.into()),
            "get_port_status" => {
                let sending = self.ends.is_some_and(|ends| Instant::now() < ends);
                Ok(json!({ "state": if sending { "TX" } else { "STREAMS" } }))
            }
            "get_port_stats" => {
                let received = self.sent / 10 * self.of_ten;
                Ok(json!({ "opackets": self.sent, "ipackets": received }))
            }
            _ if params["handler"] != handler.as_str() => Err("not the owner"),
            "remove_all_streams" => {
                self.rate = 0.0;
                Ok(json!({}))
            }
            "add_stream" => {
                let rate = &params["stream"]["mode"]["rate"];
                let all = if rate["type"] == "pps" {
                    1.0
                } else {
                    LINE_RATE / 100.0
                };
                self.rate += rate["value"].as_f64().unwrap_or(0.0) * all;
                Ok(json!({}))
            }
            "start_traffic" => {
                let seconds = params["duration"].as_f64().unwrap_or(0.0);
                self.sent += (self.rate * seconds).round() as u64;
                self.ends = Some(Instant::now() + Duration::from_secs_f64(seconds));
                Ok(json!({ "multiplier": 1.0 }))
            }
            "stop_traffic" | "release" => Ok(json!({})),
            _ => Err("Method not found"),
        }
    }

    /// Serves one client until it leaves.
    fn serve(this: &Mutex<Self>, mut client: TcpStream) -> std::io::Result<()> {
        use std::io::Write as _;
        client.write_all(&greeting())?;
        client.read_exact(&mut [0; GREETING])?;
        let (flags, body) = read_frame(&mut client)?;
        assert_eq!((flags, body), (COMMAND, ready("REQ")));
        write_frame(&mut client, COMMAND, &ready("REP"))?;
        loop {
            let delimiter = read_frame(&mut client)?;
            assert_eq!(delimiter, (MORE, Vec::new()));
            let (_, body) = read_frame(&mut client)?;
            let request: Value = serde_json::from_slice(&body)?;
            let method = request["method"].as_str().unwrap_or_default();
            let answer = this
                .lock()
                .expect("lock")
                .answer(method, &request["params"]);
            let answer = match answer {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }),
                Err(reason) => json!({ "jsonrpc": "2.0", "id": request["id"],
                    "error": { "code": -32000, "message": "refused", "specific_err": reason } }),
            };
            write_frame(&mut client, MORE, &[])?;
            write_frame(&mut client, 0, answer.to_string().as_bytes())?;
        }
    }
}

/// Starts one for one client.
fn start(server: Server) -> (String, Arc<Mutex<Server>>, JoinHandle<()>) {
    let listener = TcpListener::bind("[::1]:0").expect("listen");
    let address = listener.local_addr().expect("address").to_string();
    let server = Arc::new(Mutex::new(server));
    let shared = Arc::clone(&server);
    let thread = std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("accept");
        // It ends when the client leaves.
        let _ = Server::serve(&shared, client);
    });
    (address, server, thread)
}

fn templates() -> [(Template, u32); 2] {
    let flows = Flows {
        count: 16,
        offset: 54,
        checksum: None,
    };
    [(78, 3), (590, 1)].map(|(length, share)| {
        (
            Template::new(&vec![5; length], flows).expect("template"),
            share,
        )
    })
}

const LINE_RATE: f64 = 100_000.0;

#[test]
fn a_trial_starts_streams_at_their_shares_and_counts_at_both_ports() {
    let (address, server, thread) = start(Server {
        of_ten: 9,
        ..Server::default()
    });
    let mut trex =
        Trex::connect(&address, [2, 3], &templates(), Distribution::Uniform).expect("connect");
    let duration = Duration::from_millis(100);
    for (load, sent) in [(Load::Rate(4000.0), 400), (Load::Maximum, 10_000)] {
        let trial = trex.trial(load, duration, false).expect("trial");
        assert_eq!((trial.sent, trial.received), (sent, sent / 10 * 9));
        assert!((trial.seconds - 0.1).abs() < 1e-9);
    }
    assert!(
        trex.trial(Load::Maximum, duration, true).is_err(),
        "no latency"
    );
    drop(trex);
    thread.join().expect("server");
    let server = server.lock().expect("lock");
    let methods: Vec<&str> = server.asked.iter().map(|(method, _)| &method[..]).collect();
    assert_eq!(methods[..3], ["api_sync_v2", "acquire", "acquire"]);
    assert_eq!(
        methods[methods.len() - 4..],
        ["stop_traffic", "remove_all_streams", "release", "release"]
    );
    let streams: Vec<&Value> = server
        .asked
        .iter()
        .filter(|(method, _)| method == "add_stream")
        .map(|(_, params)| params)
        .collect();
    assert_eq!(streams.len(), 4);
    assert_eq!(
        streams[0]["stream"]["mode"]["rate"],
        json!({ "type": "pps", "value": 3000.0 })
    );
    assert_eq!(
        streams[1]["stream"]["mode"]["rate"],
        json!({ "type": "pps", "value": 1000.0 })
    );
    let flow = &streams[0]["stream"]["vm"]["instructions"][0];
    assert_eq!(
        (&flow["min_value"], &flow["max_value"]),
        (&json!("1285"), &json!("1300"))
    );
    assert_eq!(streams[0]["port_id"], 2);
}

#[test]
fn what_the_server_refuses_is_said_with_its_reason() {
    let (address, _, thread) = start(Server {
        owner: "somebody".into(),
        ..Server::default()
    });
    let refused = Trex::connect(&address, [0, 1], &templates(), Distribution::Uniform);
    let text = refused.expect_err("taken").to_string();
    assert_eq!(
        text,
        format!("TRex at {address}, acquire: port is already taken")
    );
    thread.join().expect("server");
    assert!(Trex::connect(&address, [0, 1], &templates(), Distribution::Zipf).is_err());
    assert!(Trex::connect(&address, [0, 1], &[], Distribution::Uniform).is_err());
}

#[test]
fn who_does_not_speak_zmtp_3_is_told_apart() {
    let listener = TcpListener::bind("[::1]:0").expect("listen");
    let address = listener.local_addr().expect("address").to_string();
    let thread = std::thread::spawn(move || {
        use std::io::Write as _;
        let (mut client, _) = listener.accept().expect("accept");
        // Long enough for a greeting, and none.
        let _ = client.write_all(&[b'H'; GREETING]);
    });
    let refused = Trex::connect(&address, [0, 1], &templates(), Distribution::Uniform);
    let text = refused.expect_err("no ZMTP").to_string();
    assert!(text.ends_with("no greeting of ZMTP 3"), "{text}");
    thread.join().expect("server");
}

#[test]
fn base64_is_that_of_rfc_4648() {
    // RFC 4648 10.
    let vectors = [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foobar", "Zm9vYmFy"),
    ];
    for (plain, encoded) in vectors {
        assert_eq!(base64(plain.as_bytes()), encoded);
    }
}
