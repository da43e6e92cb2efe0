//! Mutations of text by words: replace, remove, insert or duplicate one.

use sidestep_testkit::random::Random;

/// Words to choose from.
pub struct Vocabulary {
    words: Vec<String>,
}

impl Vocabulary {
    /// Returns the distinct words of these texts.
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut words: Vec<String> = texts
            .into_iter()
            .flat_map(|text| text.split(separates))
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect();
        words.sort_unstable();
        words.dedup();
        Self { words }
    }

    /// Changes one word of a text, or lets `engine` change a byte; each with probability 1/2.
    pub fn mutate(
        &self,
        input: &mut Vec<u8>,
        limit: usize,
        random: &mut Random,
        engine: &dyn Fn(&mut Vec<u8>, usize),
    ) {
        let kind = random.below(8);
        let places: Vec<(usize, usize)> = match std::str::from_utf8(input) {
            Ok(text) if kind >= 4 => text
                .split(separates)
                .filter(|word| !word.is_empty())
                .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word.len()))
                .collect(),
            _ => Vec::new(),
        };
        if places.is_empty() || self.words.is_empty() {
            return engine(input, limit);
        }
        let (at, length) = *random.pick(&places);
        let (other, other_length) = *random.pick(&places);
        let new = match kind {
            4 => Vec::new(),
            5 => input[other..other + other_length].to_vec(),
            _ => random.pick(&self.words).as_bytes().to_vec(),
        };
        if kind == 7 {
            input.splice(at..at, [&new[..], b" "].concat());
        } else {
            input.splice(at..at + length, new);
        }
        input.truncate(limit);
    }
}

fn separates(character: char) -> bool {
    character.is_whitespace() || "\"'[]{},".contains(character)
}
