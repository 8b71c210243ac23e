//! The program's bytes out of a recording: `u8 kind · u64 ms · u32 length · payload`, little-endian;
//! kind 1 is output. A record that was cut by a crash ends the reading.

const HEADER_BYTES: usize = 13;
const KIND_DATA: u8 = 1;

pub(crate) fn raw(mut bytes: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(bytes.len());
    while let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) {
        let [kind, _, _, _, _, _, _, _, _, a, b, c, d] = *header else { break };
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        if kind == KIND_DATA {
            output.extend_from_slice(payload);
        }
        bytes = rest;
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_alone_is_taken_and_a_cut_record_is_the_end() {
        let record = |kind: u8, payload: &[u8]| {
            let mut bytes = vec![kind];
            bytes.extend_from_slice(&7_u64.to_le_bytes());
            bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(payload);
            bytes
        };
        let mut file = [record(1, b"ab"), record(2, b"xxxx"), record(1, b"c")].concat();
        assert_eq!(raw(&file), b"abc");
        file.pop();
        assert_eq!(raw(&file), b"ab");
        assert_eq!(raw(b""), b"");
    }
}
