use ratatui::Terminal;
use ratatui::backend::TestBackend;
use sidestep_control::report::Problem;

use super::super::rates::{ListRate, PortRate, ReasonRate, RouteRate};
use super::*;

fn rates(routes: usize) -> Rates {
    let route = |number: usize| RouteRate {
        route: format!("fc00:5:{number:x}::/128 encap seg6local action End dev eth0"),
        pps: (number * 100) as f64,
        bps: (number * 80_000) as f64,
        ..RouteRate::default()
    };
    Rates {
        version: "0.1.0 (abcdef)".into(),
        uptime: 3661,
        problems: vec![Problem::new(
            Severity::Error,
            "port_down",
            "port eth1 is down",
        )],
        ports: vec![
            PortRate {
                name: "eth0".into(),
                state: Some("up"),
                received_pps: 12_345.0,
                received_bps: 9_876_000.0,
                forwarded_pps: 12_000.0,
                punted_pps: 300.0,
                dropped_pps: 45.0,
                ..PortRate::default()
            },
            PortRate {
                name: "eth1".into(),
                state: Some("down"),
                sent_pps: 12_000.0,
                sent_bps: 9_600_000.0,
                ..PortRate::default()
            },
        ],
        routes: (0..routes).map(route).collect(),
        reasons: vec![ReasonRate {
            verdict: "drop".into(),
            name: "hop_limit".into(),
            sentence: "the hop limit expired".into(),
            pps: 45.0,
            packets: 90,
        }],
        lists: vec![ListRate {
            policy: "gold".into(),
            preference: 100,
            active: true,
            segments: vec!["fc00:1::e".into(), "fc00:2::e".into()],
            pps: 7.0,
            bps: 56_000.0,
            list: 0,
        }],
        ..Rates::default()
    }
}

fn screen(routes: usize) -> Screen {
    let mut screen = Screen::new(Sort::Packets, 1.0, true);
    screen.rates = Some(rates(routes));
    screen
}

/// Draws the screen on a terminal of this size. Returns its cells.
fn drawn(screen: &mut Screen, width: u16, height: u16) -> ratatui::buffer::Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    let frame = terminal.draw(|frame| screen.draw(frame)).expect("memory");
    frame.buffer.clone()
}

/// Lines on a terminal of this size, without trailing spaces.
fn lines(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let buffer = drawn(screen, width, height);
    let cells = buffer.content().chunks(width.into());
    let line = |cells: &[ratatui::buffer::Cell]| -> String {
        cells.iter().map(ratatui::buffer::Cell::symbol).collect()
    };
    cells
        .map(|cells| line(cells).trim_end().to_owned())
        .collect()
}

fn press(screen: &mut Screen, code: KeyCode) -> bool {
    screen.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn all_tables_are_on_one_screen() {
    let lines = lines(&mut screen(2), 80, 16);
    let expected = "\
sidestep 0.1.0, up 1h 1m 1s, every 1 s, sorted by packets
in 12.3k pps, 9.88M bit/s   out 12.0k pps, 9.60M bit/s   punted 300   dropped 45
1 error, 0 warnings: see `sidestep doctor`
port  in pps  in bit/s  out pps  out bit/s  punted  dropped  state
eth0   12.3k     9.88M        0          0     300       45  up
eth1       0         0    12.0k      9.60M       0        0  down
   pps   bit/s  errors  route
   100   80.0k       0  fc00:5:1::/128 encap seg6local action End dev eth0
     0       0       0  fc00:5:0::/128 encap seg6local action End dev eth0
   pps  packets  verdict  reason     meaning
    45       90  drop     hop_limit  the hop limit expired
   pps   bit/s  policy  preference  segment list
   7.0   56.0k  gold    100         fc00:1::e,fc00:2::e


q quit  space pause  sort: p b e n  view: 0-5 Tab (all)  scroll: arrows";
    assert_eq!(lines.join("\n"), expected);
}

#[test]
fn every_size_of_the_terminal_is_drawn() {
    let mut screen = screen(1000);
    for (width, height) in [(1, 1), (20, 2), (40, 5), (80, 24), (160, 50), (300, 120)] {
        for view in ['0', '1', '2', '3', '4'] {
            press(&mut screen, KeyCode::Char(view));
            let lines = lines(&mut screen, width, height);
            assert_eq!(lines.len(), usize::from(height));
        }
    }
}

#[test]
fn the_longest_table_gets_the_lines_that_the_others_leave() {
    let lines = lines(&mut screen(1000), 80, 24);
    let heads = lines.iter().filter(|line| line.contains("pps  "));
    assert_eq!(heads.count(), 4, "{lines:#?}");
    assert!(lines[6].ends_with("route (1-12 of 1000)"), "{}", lines[6]);
    assert_eq!(shares(&[3, 1000, 2, 2], 20), [3, 13, 2, 2]);
    assert_eq!(shares(&[50, 50], 11), [6, 5]);
    assert_eq!(shares(&[2, 2], 11), [2, 2]);
}

#[test]
fn keys_sort_pause_scroll_and_quit() {
    let mut screen = screen(100);
    assert!(!press(&mut screen, KeyCode::Char('2')));
    let first = |screen: &mut Screen| lines(screen, 80, 24)[4].clone();
    assert!(first(&mut screen).contains("fc00:5:63::"));
    press(&mut screen, KeyCode::Char('n'));
    assert!(first(&mut screen).contains("fc00:5:0::"));
    press(&mut screen, KeyCode::PageDown);
    let text = lines(&mut screen, 80, 24);
    assert!(text[3].ends_with("route (20-38 of 100)"), "{}", text[3]);
    for _ in 0..10 {
        press(&mut screen, KeyCode::PageDown);
    }
    let text = lines(&mut screen, 80, 24);
    assert!(
        text[3].ends_with("route (82-100 of 100)"),
        "the end: {}",
        text[3]
    );
    press(&mut screen, KeyCode::Up);
    assert!(lines(&mut screen, 80, 24)[3].ends_with("(81-99 of 100)"));
    press(&mut screen, KeyCode::Char(' '));
    assert!(lines(&mut screen, 80, 24)[0].contains("paused, sorted by name"));
    press(&mut screen, KeyCode::Tab);
    assert!(lines(&mut screen, 80, 24)[3].contains("reason"));
    assert!(press(&mut screen, KeyCode::Char('q')));
    assert!(screen.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn without_colors_the_tones_are_bold() {
    let mut screen = screen(2);
    let styles = |screen: &mut Screen| {
        let buffer = drawn(screen, 80, 24);
        let cells = buffer.content().iter();
        let colored = cells.clone().filter(|cell| cell.fg != Color::Reset).count();
        let bold = |cell: &&ratatui::buffer::Cell| cell.modifier.contains(Modifier::BOLD);
        (colored, cells.filter(bold).count())
    };
    let (colored, bold) = styles(&mut screen);
    assert!(colored > 0);
    screen.has_color = false;
    let (without, more) = styles(&mut screen);
    assert_eq!(without, 0);
    assert_eq!(more, bold + colored);
}

#[test]
fn a_daemon_that_does_not_reply_is_on_the_screen() {
    let mut screen = screen(2);
    screen.rates = None;
    screen.problem = Some("sidestep is not running".into());
    assert!(lines(&mut screen, 80, 24)[2].contains("sidestep is not running"));
}
